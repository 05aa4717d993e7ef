-- KEYS: the fence of each key
-- ARGV: token number
-- Answers: 1
-- Where the keys of one lock are in several slots, the numbers that they gave it differ: all go on
-- from the largest. A counter that has served somebody else meanwhile is past that already.
for _, fence in ipairs(KEYS) do
  local last, owner = string.match(redis.call('GET', fence) or '', '^(%d+) (.*)$')
  if not last or (owner == ARGV[1] and tonumber(last) < tonumber(ARGV[2])) then
    redis.call('SET', fence, ARGV[2] .. ' ' .. ARGV[1], 'PX', 86400000)
  end
end
return 1

-- KEYS: lock
-- ARGV: token ttl how: "look", "lengthen" (never to an earlier end) or "set"
-- Answers: 1 ours; {1, left, marked} ours, with the milliseconds left when they are more than a second
--          above the ttl (-1: no end) or else 0, and 1 when somebody waits; {0} nothing there;
--          {-1, holder} somebody else has it
-- One key only: a slot that is half way to another node serves that, and nothing more.
local holder = redis.pcall('GET', KEYS[1])
local marked = holder == ARGV[1] .. '+'
if holder ~= ARGV[1] and not marked then
  if not holder then return {0} end
  if type(holder) == 'string' then return {-1, holder} end
  if not string.find(holder.err, 'WRONGTYPE', 1, true) then return redis.call('GET', KEYS[1]) end
  return {-1, '(a value of another type)'}
end
local longer, ttl = 0, tonumber(ARGV[2])
if ARGV[3] == 'set' then
  redis.call('PEXPIRE', KEYS[1], ttl)
elseif ARGV[3] == 'lengthen' then
  local left = redis.call('PTTL', KEYS[1])
  if left >= 0 and left < ttl then
    redis.call('PEXPIRE', KEYS[1], ttl)
  elseif left < 0 or left > ttl + 1000 then
    longer = left
  end
end
if longer == 0 and not marked then return 1 end
return {1, longer, marked and 1 or 0}

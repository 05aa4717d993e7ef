-- EACH KEYS: fence
-- ARGV: token reached
-- Answers: 1
-- Where the keys of one lock are in several slots, the numbers that they gave it differ: all go on
-- from the largest. A counter that has served somebody else meanwhile is past that already.
for i = 1, count do
  local fence = each(i)
  local it, refused = counter(fence, 0)
  if refused then return refused end
  if it.last == 0 or it.owner == token and it.last < tonumber(reached) then
    remember(fence, tonumber(reached), token)
  end
end
return 1

-- KEYS: lock
-- ARGV: token ttl how
-- Answers: 1 ours; {1, left, marked} ours, with the milliseconds left when they are more than a second
--          above the ttl (-1: no end) or else 0, and 1 when somebody waits; {0} nothing there;
--          {-1, holder} somebody else has it
-- `how` is "look", "lengthen" (never to an earlier end) or "set".
-- One key only: a slot that is half way to another node serves that, and nothing more.
local holder = try('GET', lock)
if not has(holder, token) then
  if holder == false then return {0} end
  return {-1, shown(holder)}
end
local longer = 0
local asked = tonumber(ttl)
if how == 'set' then
  redis.call('PEXPIRE', lock, ttl)
elseif how == 'lengthen' then
  local left = redis.call('PTTL', lock)
  if left >= 0 and left < asked then
    redis.call('PEXPIRE', lock, ttl)
  elseif left < 0 or left > asked + 1000 then
    longer = left
  end
end
if longer == 0 and holder == token then return 1 end
return {1, longer, holder == token and 0 or 1}

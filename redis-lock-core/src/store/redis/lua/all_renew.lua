-- EACH KEYS: lock
-- ARGV: token ttl how
-- Answers: as renew.lua; all are renewed, or none; of the times left the longest
local marked, longer = 0, 0
local asked = tonumber(ttl)
for i = 1, count do
  local holder = try('GET', each(i))
  if not has(holder, token) then
    if holder == false then return {0} end
    return {-1, shown(holder)}
  end
  if holder ~= token then marked = 1 end
end
for i = 1, count do
  local lock = each(i)
  local left = how == 'lengthen' and redis.call('PTTL', lock)
  if how == 'set' or left and left >= 0 and left < asked then
    redis.call('PEXPIRE', lock, ttl)
  elseif left and left < 0 then
    longer = -1
  elseif left and left > asked + 1000 and longer >= 0 then
    longer = math.max(longer, left)
  end
end
if longer == 0 and marked == 0 then return 1 end
return {1, longer, marked}

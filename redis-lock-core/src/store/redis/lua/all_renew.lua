-- KEYS: the lock of each key
-- ARGV: token ttl how
-- Answers: as renew.lua; all are renewed, or none; of the times left the longest
local token, ttl = ARGV[1], tonumber(ARGV[2])
local marked = 0
for _, lock in ipairs(KEYS) do
  local holder = redis.pcall('GET', lock)
  if holder == token .. '+' then
    marked = 1
  elseif holder ~= token then
    if not holder then return {0} end
    if type(holder) == 'string' then return {-1, holder} end
    if not string.find(holder.err, 'WRONGTYPE', 1, true) then return redis.call('GET', lock) end
    return {-1, '(a value of another type)'}
  end
end
local longer = 0
for _, lock in ipairs(KEYS) do
  local left = ARGV[3] == 'lengthen' and redis.call('PTTL', lock)
  if ARGV[3] == 'set' or left and left >= 0 and left < ttl then
    redis.call('PEXPIRE', lock, ttl)
  elseif left and left < 0 then
    longer = -1
  elseif left and left > ttl + 1000 and longer >= 0 then
    longer = math.max(longer, left)
  end
end
if longer == 0 and marked == 0 then return 1 end
return {1, longer, marked}

-- EACH KEYS: lock
-- EACH ARGV: token
-- Answers: {number ...} of those that are not simply ours: i is to be released by itself; 0 at the end
--          when the user may not read many keys, so that a call like this saves nothing
-- A value of another type reads as none, so one key costs the others nothing. A marked value is not
-- equal, so whoever waits is not passed over.
local holders = redis.pcall('MGET', unpack(KEYS))
local denied = holders.err
-- Were the call refused, an acquisition behind it would be executed before the releases.
if denied then
  for i = 1, count do holders[i] = redis.pcall('GET', (each(i))) end
end
local ours, odd = {}, {}
for i = 1, count do
  local lock, token = each(i)
  if holders[i] == token then ours[#ours + 1] = lock else odd[#odd + 1] = i end
end
if #ours > 0 then redis.call('DEL', unpack(ours)) end
if denied then odd[#odd + 1] = 0 end
return odd

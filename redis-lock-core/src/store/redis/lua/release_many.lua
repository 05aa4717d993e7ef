-- EACH KEYS: lock
-- EACH ARGV: token
-- Answers: {number ...} of those that are not simply ours: i is to be released by itself
-- A value of another type reads as none, so one key costs the others nothing. A marked value is not
-- equal, so whoever waits is not passed over.
local holders = redis.call('MGET', unpack(KEYS))
local ours, odd = {}, {}
for i = 1, count do
  local lock, token = each(i)
  if holders[i] == token then ours[#ours + 1] = lock else odd[#odd + 1] = i end
end
if #ours > 0 then redis.call('DEL', unpack(ours)) end
return odd

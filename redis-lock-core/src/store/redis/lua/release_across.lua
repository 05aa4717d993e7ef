#!lua flags=allow-oom,allow-cross-slot-keys
-- EACH ARGV: lock token
-- Answers: {number ...} of those that are not simply ours: i is to be released by the script that knows
--          the whole lock, -i by itself from the start, since the key could not be used
-- The same as release_many.lua for a node of a cluster. Keys of several slots may not be declared, and
-- may not be in one command. An error of one key, which has moved to another node, costs the others
-- nothing.
local odd = {}
for i = 1, count do
  local lock, token = each(i)
  local holder = redis.pcall('GET', lock)
  if holder == token then
    if redis.pcall('DEL', lock) ~= 1 then odd[#odd + 1] = -i end
  else
    odd[#odd + 1] = type(holder) == 'table' and -i or i
  end
end
return odd

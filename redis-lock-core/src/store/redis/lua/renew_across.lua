#!lua flags=allow-oom,allow-cross-slot-keys
-- ARGV: ttl
-- EACH ARGV: lock token
-- Answers: as renew_many.lua
-- The same as renew_many.lua for a node of a cluster. Keys of several slots may not be declared, and may
-- not be in one command. An error of one key, which has moved to another node, costs the others nothing.
ttl = tonumber(ttl)

-- Lets a lease run for `ttl`, unless it runs longer. Whether it ends when it should.
local function is_renewed(lock)
  if redis.pcall('PEXPIRE', lock, ttl, 'GT') == 1 then return true end
  local left = redis.pcall('PTTL', lock)
  return type(left) == 'number' and left >= ttl and left <= ttl + 1000
end

local odd = {}
for i = 1, count do
  local lock, token = each(i)
  local holder = redis.pcall('GET', lock)
  local is_marked = holder == token .. '+'
  if not (holder == token or is_marked) or not is_renewed(lock) then
    odd[#odd + 1] = i
  elseif is_marked then
    odd[#odd + 1] = -i
  end
end
return odd

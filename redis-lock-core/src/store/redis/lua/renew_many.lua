-- EACH KEYS: lock
-- ARGV: ttl
-- EACH ARGV: token
-- Answers: {number ...} of those that are not simply ours for `ttl` from now: i is to be asked for by
--          itself, -i is ours and somebody waits for it
-- A value of another type reads as none, so one key costs the others nothing.
local asked = tonumber(ttl)
-- Since version 7 the server compares two ends by itself; before, a script can't tell its version.
local compares = redis.REDIS_VERSION_NUM ~= nil

-- Lets a lease run for `ttl`, unless it runs longer. Whether it ends when it should.
local function is_renewed(lock)
  if compares and redis.call('PEXPIRE', lock, ttl, 'GT') == 1 then return true end
  local left = redis.call('PTTL', lock)
  if left < 0 or left > asked + 1000 then return false end
  if left < asked then redis.call('PEXPIRE', lock, ttl) end
  return true
end

local odd = {}
local holders = redis.call('MGET', unpack(KEYS))
for i = 1, count do
  local lock, token = each(i)
  local holder = holders[i]
  if not has(holder, token) or not is_renewed(lock) then
    odd[#odd + 1] = i
  elseif holder ~= token then
    odd[#odd + 1] = -i
  end
end
return odd

-- KEYS: lock queue waiters fence tombstone shared
-- ARGV: token ttl place channel fair fences repair claim ask
-- Answers: {-7, value} the token gets the value of another hold; else as acquire.lua, which follows
if try('HGET', shared, token) then
  redis.call('HDEL', shared, token)
  local value = redis.call('HGET', shared, '')
  -- The last one takes the value away.
  if redis.pcall('HLEN', shared) == 1 then redis.call('DEL', shared) end
  leave(queue, waiters, token)
  if value then return {-7, value} end
end

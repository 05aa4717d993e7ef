-- KEYS: lock queue waiters fence tomb
-- ARGV: token next_token ttl place channel fences claim
-- Answers: {1, fence} kept; {2} handed over, `next_token` is queued; {0, reason} or {-1, holder} not
--          ours
ttl, fences = tonumber(ttl), tonumber(fences)
local holder = try('GET', lock)
if not has(holder, token) then return gone(holder, tomb) end
local last = fences > 0 and redis.call('GET', fence)
if waiting(queue, waiters) > 0 then
  local left = redis.call('PTTL', lock)
  enqueue(queue, waiters, next_token, tonumber(place), channel)
  local first = grant(lock, queue, waiters, claim, next_token)
  if first == nil then redis.call('DEL', lock) end
  if first ~= next_token then return {2} end
  -- All who came before are dead.
  leave(queue, waiters, next_token)
  redis.call('SET', lock, value_of(queue, waiters, token), 'PX', math.max(ttl, left))
else
  lengthen(lock, ttl)
end
if fences == 0 then return {1, ''} end
return {1, number(fence, last, token, fences, true)}

-- KEYS: lock queue waiters limits tomb
-- ARGV: token claim
-- Answers: {1} reads now; {0, reason} nothing there; {-1, holder} something else stands there
local lock, queue, waiters, limits = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token = ARGV[1]
if stranger(lock, 'w') then return {-1, '(another kind of value)'} end
local now = millis()
purge(lock, limits, now)
local mode = mode_of(lock, 'w', token)
if not mode then return {0, redis.call('GET', KEYS[5]) or ''} end
if mode == 'w' then
  local finish = tonumber(redis.call('ZSCORE', lock, 'w:' .. token))
  drop(lock, limits, 'w', token)
  put(lock, limits, 'r', token, 0, finish)
  admit(lock, queue, waiters, limits, 'r', now, tonumber(ARGV[2]))
  settle(lock, limits)
end
return {1}

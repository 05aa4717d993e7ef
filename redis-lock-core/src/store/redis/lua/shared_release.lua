-- KEYS: lock queue waiters limits tomb
-- ARGV: mode limit token keep bury claim
-- Answers: {1} released; {0, reason} nothing there; {-1, holder} something else stands there
local lock, queue, waiters, limits, tomb = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, keep = ARGV[3], tonumber(ARGV[4])
local answer
if stranger(lock, ARGV[1]) then
  leave(queue, waiters, token)
  answer = {-1, '(another kind of value)'}
else
  local now = millis()
  purge(lock, limits, now)
  local mode = mode_of(lock, ARGV[1], token)
  if not mode then
    leave(queue, waiters, token)
    answer = {0, redis.call('GET', tomb) or ''}
  else
    if keep > 0 then
      go_on_at_maxmemory(lock)
      put(lock, limits, mode, token, ARGV[2], now + keep)
    else
      drop(lock, limits, mode, token)
    end
    answer = {1}
  end
  -- Also after a waiter left: it may have stood before others that fit.
  admit(lock, queue, waiters, limits, ARGV[1], now, tonumber(ARGV[6]))
  settle(lock, limits)
end
if ARGV[5] ~= '0' then redis.pcall('SET', tomb, '', 'PX', ARGV[5]) end
return answer

-- KEYS: lock queue waiters limits tombstone
-- ARGV: mode limit token keep tombstone_time claim
-- Answers: {1} released; {0, reason} nothing there; {-1, holder} something else stands there
keep = tonumber(keep)
local answer = {1}
if stranger(lock, mode) then
  leave(queue, waiters, token)
  answer = gone(nil, tombstone)
else
  local now = millis()
  purge(lock, limits, mode, now)
  local held, _, slot = hold_of(lock, mode, token)
  if not held then
    leave(queue, waiters, token)
    -- What freed the lock alone left its limit.
    if mode == PERMIT then try('ZREM', limits, token) end
    answer = gone(false, tombstone)
  elseif keep > 0 then
    go_on_at_maxmemory(lock)
    put(lock, limits, held, token, limit, now + keep, slot)
  else
    drop(lock, limits, held, token)
  end
  -- Also after a waiter left: it may have stood before others that fit.
  admit(lock, queue, waiters, limits, mode, now, tonumber(claim))
  settle(lock, limits)
end
leave_tombstone(tombstone, tombstone_time)
return answer

-- KEYS: lock queue waiters limits tombstone
-- ARGV: token claim
-- Answers: {1} reads now; {0, reason} nothing there; {-1, holder} something else stands there
if stranger(lock, 'w') then return gone(nil, tombstone) end
local now = millis()
purge(lock, limits, 'w', now)
local mode, finish = hold_of(lock, 'w', token)
if not mode then return gone(false, tombstone) end
if mode == 'w' then
  drop(lock, limits, 'w', token)
  put(lock, limits, 'r', token, 0, finish)
  admit(lock, queue, waiters, limits, 'r', now, tonumber(claim))
  settle(lock, limits)
end
return {1}

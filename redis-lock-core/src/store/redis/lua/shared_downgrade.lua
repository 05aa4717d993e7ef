-- KEYS: lock queue waiters limits tombstone
-- ARGV: token claim
-- Answers: {1} reads now; {0, reason} nothing there; {-1, holder} something else stands there
if stranger(lock, WRITE) then return gone(nil, tombstone) end
local now = millis()
purge(lock, limits, WRITE, now)
local mode, finish = hold_of(lock, WRITE, token)
if not mode then return gone(false, tombstone) end
if mode == WRITE then
  drop(lock, limits, WRITE, token)
  put(lock, limits, READ, token, 0, finish)
  admit(lock, queue, waiters, limits, READ, now, tonumber(claim))
  settle(lock, limits)
end
return {1}

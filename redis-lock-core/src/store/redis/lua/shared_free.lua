-- KEYS: lock
-- ARGV: mode token
-- Answers: {1} freed; {0} nothing there; {-1, holder} something else stands there
-- Ends a hold where the node refuses the keys beside the lock, because their slot is half moved. Who
-- waits looks by itself, and a release with all keys follows.
if stranger(lock, mode) then return {-1, shown(nil)} end
local held, finish = hold_of(lock, mode, token)
if not held or finish <= millis() then return {0} end
local others = redis.call('ZCARD', lock) > 1
redis.call('ZREM', lock, held .. ':' .. token)
-- A key that is gone is none of this node's.
if others then settle(lock, lock) end
return {1}

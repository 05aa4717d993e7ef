-- KEYS: lock queue waiters tombstone value
-- ARGV: token keep mark tombstone_time claim text
-- Answers: as release.lua
-- Puts a mark in the place of a token, and what was done under it beside the lock.
local holder = try('GET', lock)
local answer = 1
if not has(holder, token) then
  leave(queue, waiters, token)
  answer = gone(holder, tombstone)
else
  -- What another program has written there stays, and then the mark has no value.
  local stands = redis.pcall('GETRANGE', value, 0, 3)
  keep_by(mark, lock, queue, waiters, keep)
  if stands == '' or stands == 'rl1.' then redis.call('SET', value, text, 'PX', keep) end
end
leave_tombstone(tombstone, tombstone_time)
return answer

-- KEYS: lock limits
-- ARGV: mode limit token ttl how
-- Answers: 1 ours; {1, left, 0, slot} as renew.lua; {0} nothing there; {-1, holder} something else stands
--          there
-- No key that is mostly absent: a slot that is half way to another node serves a script whose keys are
-- all at one of them, and no other. For readers and writers, who have no limits, they are the lock once
-- more. So they are for permits while their slot is half moved. What ended meanwhile of the limits is
-- noted again.
ttl = tonumber(ttl)
if stranger(lock, mode) then return {-1, shown(nil)} end
local now = millis()
local held, finish, slot = hold_of(lock, mode, token)
if not held or finish <= now then return {0} end
if how == 'look' then return 1 end
if how == 'set' or finish < now + ttl then
  go_on_at_maxmemory(lock)
  redis.call('ZADD', lock, score_of(now + ttl, slot), held .. ':' .. token)
  if mode == PERMIT and limits ~= lock and try('ZSCORE', limits, token) == false then
    redis.call('ZADD', limits, limit, token)
  end
  settle(lock, limits)
elseif finish > now + ttl + 1000 then
  return {1, finish - now, 0, slot}
end
return slot and {1, 0, 0, slot} or 1

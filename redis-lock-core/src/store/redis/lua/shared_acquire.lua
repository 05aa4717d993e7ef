-- KEYS: lock queue waiters fence tomb limits
-- ARGV: mode limit token ttl place channel fair fences claim
-- Answers: {1, fence, other limit} ours; {0, left, holder, queued, 0, other limit} busy, where
--          `left` is the time to the first moment that may change it; {-2} buried;
--          {-4, kind} something else stands there
local lock, queue, waiters, limits = KEYS[1], KEYS[2], KEYS[3], KEYS[6]
local mode, limit, token, ttl = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local place, claim = tonumber(ARGV[5]), tonumber(ARGV[9])
if redis.call('EXISTS', KEYS[5]) == 1 then return {-2} end
local other = stranger(lock, mode)
if other then return other end
local now = millis()
purge(lock, limits, now)

local held = mode_of(lock, mode, token)
if held then
  go_on_at_maxmemory(lock)
  local finish = tonumber(redis.call('ZSCORE', lock, held .. ':' .. token))
  put(lock, limits, held, token, limit, math.max(finish, now + ttl))
else
  local first = ARGV[7] == '0' or admit(lock, queue, waiters, limits, mode, now, claim, token)
  if not (first and fits(lock, limits, mode, limit)) then
    -- A full server refuses to note one more waiter; it will look by itself, and is no less busy.
    local queued = place > 0
      and pcall(enqueue, queue, waiters, token, place, ARGV[6], '/' .. mode .. ARGV[2])
    settle(lock, limits)
    -- A permit is free when the first holder is gone, a lock for reading or writing after the last.
    local which = mode == 'p' and 0 or -1
    local holder = redis.call('ZRANGE', lock, which, which, 'WITHSCORES')
    local left = tonumber(holder[2]) - now
    return {0, left, string.sub(holder[1], 3), queued and 1 or 0, 0, other_limit(limits, limit)}
  end
  put(lock, limits, mode, token, limit, now + ttl)
end
leave(queue, waiters, token)
-- Those behind may fit as well: a run of readers is let in together.
admit(lock, queue, waiters, limits, mode, now, claim)
settle(lock, limits)
local fence = ''
if ARGV[8] ~= '0' then fence = number(KEYS[4], token, tonumber(ARGV[8]), false) end
return {1, fence, other_limit(limits, limit)}

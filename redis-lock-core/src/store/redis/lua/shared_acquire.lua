-- KEYS: lock queue waiters fence tombstone limits
-- ARGV: mode limit token ttl place channel fair fences claim
-- EACH ARGV: most
-- Answers: {1, fence, other limit, slot} ours; {0, left, holder, queued, 0, other limit} busy, as in acquire.lua,
--          where `left` is the time to the first moment that may change it; {-2} has a tombstone;
--          {-4, kind} something else stands there; {-5, waiting} so many wait that this token may not
local wanted, slotted = limit, wants_slot(limit)
limit, ttl, place = tonumber(limit), tonumber(ttl), tonumber(place)
claim, fences = tonumber(claim), tonumber(fences)
asker = manager_of(token)
if redis.call('EXISTS', tombstone) == 1 then return {-2} end
local other = stranger(lock, mode)
if other then return other end
-- Read before anything is written: no number can be given where another program's value stands.
local last, refused
if fences > 0 then last, refused = counter(fence, fences) end
if refused then return refused end
local now = millis()
purge(lock, limits, mode, now)

local held, finish, slot = hold_of(lock, mode, token)
if held then
  go_on_at_maxmemory(lock)
  -- An older process lets waiters in without a slot.
  if slotted and not slot then slot = free_slot(lock) end
  put(lock, limits, held, token, limit, math.max(finish, now + ttl), slot)
else
  local first = true
  if fair == '1' then first = admit(lock, queue, waiters, limits, mode, now, claim, token) end
  if not (first and fits(lock, limits, mode, limit)) then
    local crowd = crowd_of(queue, waiters, token, tonumber(each(1) or 0))
    if crowd then
      settle(lock, limits)
      return {-5, crowd}
    end
    local sort = '/' .. mode .. wanted
    local queued = line_up(queue, waiters, token, place, channel, sort)
    settle(lock, limits)
    -- A permit is free when the first holder is gone, a lock for reading or writing after the last.
    local which = mode == PERMIT and 0 or -1
    local holder = redis.call('ZRANGE', lock, which, which, 'WITHSCORES')
    -- Where there is more to do than one call does, there is no reason to wait.
    local left = first ~= nil and holder[2] and math.max(end_and_slot(holder[2]) - now, 1) or 1
    local who = holder[1] and shown(string.sub(holder[1], 3)) or false
    return {0, left, who, queued, 0, other_limit(limits, limit)}
  end
  if slotted then slot = free_slot(lock) end
  put(lock, limits, mode, token, limit, now + ttl, slot)
end
leave(queue, waiters, token)
-- Those behind may fit as well: a run of readers is let in together.
admit(lock, queue, waiters, limits, mode, now, claim)
settle(lock, limits)
local fenced = ''
if fences > 0 then fenced = number({fence}, {last}, token, fences) end
return {1, fenced, other_limit(limits, limit), slot}

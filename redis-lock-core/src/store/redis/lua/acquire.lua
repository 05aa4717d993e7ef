-- KEYS: lock queue waiters fence tombstone
-- ARGV: token ttl place channel fair fences repair claim ask
-- EACH KEYS: latest
-- EACH ARGV: most newest
-- Answers: {1, fence} ours; {0, left, holder, queued, repaired, asked} busy, where `queued` is 1 for a place
--          in the queue; {-2} has a tombstone, or needs a token that ends no calls;
--          {-3, holder} a foreign value without ttl; {-4, kind} another kind of lock stands there;
--          {-5, waiting, holder, left} so many wait that this token may not;
--          {-6, held} a newer call has come, and `held` is 1 when this token has the lock
-- `newest` is 1 where this may be the first question of a call that ends older ones, and 2 in its later ones.
place, fences = tonumber(place), tonumber(fences)
asker = manager_of(token)
if redis.call('EXISTS', tombstone) == 1 then return {-2} end
local holder = try('GET', lock)
if holder == nil then return {-4, kind_at(lock)} end
-- Read before anything is written: no number can be given where another program's value stands.
local counted, refused
if fences > 0 then counted, refused = counter(fence, fences) end
if refused then return refused end

local latest, most, newest = each(1)
local mine = has(holder, token)
-- The newest call, and whether this one is to be noted as such.
local last, is_new = nil, false
if newest == '1' or newest == '2' then
  last = last_of(latest)
  is_new = not mine and not (last and try('ZSCORE', latest, token))
  if is_new and newest == '2' then
    -- A full list may have dropped it, for newer ones. Otherwise the list has ended since, a full server did not note
    -- the call, or a fail-over lost it, so nobody knows which calls are newer.
    if not last or redis.call('ZCARD', latest) < MOST then return {-2} end
    is_new = false
  end
  if last and last ~= token and not is_new then
    line_up(queue, waiters, token, 0)
    return {-6, mine and 1 or 0}
  end
end

local function busy(who, left, repaired)
  local crowd = crowd_of(queue, waiters, token, tonumber(most or 0))
  if crowd then return {-5, crowd, shown(who), left} end
  if is_new then come_last(latest, queue, waiters, token, place, last) end
  local queued = line_up(queue, waiters, token, place, channel)
  local asked = false
  if newest == '1' or newest == '2' then
    if last then redis.call('PEXPIRE', latest, decimal(place + 1000)) end
    ask_to_leave(who, channel)
  end
  if queued > 0 then
    ask_to_hand_over(lock, channel)
  elseif ask ~= '0' then
    asked, queued = ask_if_idle(lock, queue, waiters, token, tonumber(ask), channel)
  end
  return {0, left, shown(who), queued, repaired, asked and 1 or 0}
end

if holder and not mine then
  local left = redis.call('PTTL', lock)
  if not is_orphan(holder, left) then return busy(holder, left, 0) end
  if repair == '0' then return {-3, shown(holder)} end
  redis.call('PEXPIRE', lock, repair)
  return busy(holder, tonumber(repair), 1)
end
if mine then
  if ttl == '0' then redis.call('PERSIST', lock) else lengthen(lock, ttl) end
  leave(queue, waiters, token)
else
  local value = token
  if waiting(queue, waiters) > 0 then
    local first = token
    if fair == '1' then first = grant(lock, queue, waiters, claim, token) end
    if first == nil then return busy(false, 1, 0) end
    if first and first ~= token then return busy(first, tonumber(claim), 0) end
    leave(queue, waiters, token)
    value = value_of(queue, waiters, token)
  end
  if ttl == '0' then redis.call('SET', lock, value) else redis.call('SET', lock, value, 'PX', ttl) end
end
-- Calls that came before may still ask, and must not end this one.
if last and is_new then add_newest(latest, waiters, token) end
if fences == 0 then return {1, ''} end
return {1, number({fence}, {counted}, token, fences)}

-- KEYS: lock queue waiters fence tombstone
-- ARGV: token ttl place channel fair fences repair claim ask
-- EACH ARGV: most
-- Answers: {1, fence} ours; {0, left, holder, queued, repaired, asked} busy, where `queued` is 1 for a place
--          in the queue; {-2} has a tombstone;
--          {-3, holder} a foreign value without ttl; {-4, kind} another kind of lock stands there;
--          {-5, waiting, holder} so many wait that this token may not
place, fences = tonumber(place), tonumber(fences)
asker = manager_of(token)
if redis.call('EXISTS', tombstone) == 1 then return {-2} end
local holder = try('GET', lock)
if holder == nil then return {-4, kind_at(lock)} end
-- Read before anything is written: no number can be given where another program's value stands.
local last, refused
if fences > 0 then last, refused = counter(fence, fences) end
if refused then return refused end

local function busy(who, left, repaired)
  local crowd = crowd_of(queue, waiters, token, tonumber(each(1) or 0))
  if crowd then return {-5, crowd, shown(who)} end
  local queued = line_up(queue, waiters, token, place, channel)
  local asked = false
  if queued > 0 then
    ask_to_hand_over(lock, channel)
  elseif ask ~= '0' then
    asked, queued = ask_if_idle(lock, queue, waiters, token, tonumber(ask), channel)
  end
  return {0, left, shown(who), queued, repaired, asked and 1 or 0}
end

local mine = has(holder, token)
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
if fences == 0 then return {1, ''} end
return {1, number({fence}, {last}, token, fences)}

-- KEYS: tombstone
-- EACH KEYS: lock queue waiters fence
-- ARGV: token ttl place channel fair fences repair claim ordered
-- Answers: as acquire.lua, about the first key that somebody else has
-- The keys are in the order of their names.
place, fences = tonumber(place), tonumber(fences)
asker = manager_of(token)
if redis.call('EXISTS', tombstone) == 1 then return {-2} end

-- All that can be refused is found out before anything is written.
local holders, lefts, counters, lasts = {}, {}, {}, {}
for i = 1, count do
  local lock, _, _, fence = each(i)
  local holder = try('GET', lock)
  if holder == nil then return {-4, kind_at(lock)} end
  holders[i], counters[i] = holder, fence
  lefts[i] = holder and redis.call('PTTL', lock)
  if holder and not has(holder, token) and is_orphan(holder, lefts[i]) and repair == '0' then
    return {-3, shown(holder)}
  end
  if fences > 0 then
    local last, refused = counter(fence, fences)
    if refused then return refused end
    lasts[i] = last
  end
end

local blocker
for i = 1, count do
  local lock, queue, waiters = each(i)
  local holder, left, repaired = holders[i], lefts[i], 0
  if holder and not has(holder, token) then
    if is_orphan(holder, left) then
      redis.call('PEXPIRE', lock, repair)
      left, repaired = tonumber(repair), 1
    end
    blocker = blocker or {at = i, holder = holder, left = left, repaired = repaired}
  elseif not holder and fair == '1' then
    local first = grant(lock, queue, waiters, claim, token)
    if first == nil then
      blocker = blocker or {at = i, holder = false, left = 1, repaired = 0}
    elseif first and first ~= token then
      blocker = blocker or {at = i, holder = first, left = tonumber(claim), repaired = 0}
    end
  end
end

for i = 1, count do
  local lock, queue, waiters = each(i)
  local mine = has(holders[i], token)
  if not (blocker and blocker.at == i) then leave(queue, waiters, token) end
  if not blocker and mine then
    lengthen(lock, ttl)
  elseif not blocker then
    redis.call('SET', lock, value_of(queue, waiters, token), 'PX', ttl)
  elseif ordered == '1' and place > 0 and i < blocker.at then
    -- What is kept while waiting lasts as long as the place in the queue.
    redis.call('SET', lock, value_of(queue, waiters, token), 'PX', decimal(place))
  elseif mine then
    give_back(lock, queue, waiters, claim)
  end
end

if blocker then
  local lock, queue, waiters = each(blocker.at)
  local queued = line_up(queue, waiters, token, place, channel)
  if queued > 0 then ask_to_hand_over(lock, channel) end
  return {0, blocker.left, shown(blocker.holder), queued, blocker.repaired}
end
if fences == 0 then return {1, ''} end
return {1, number(counters, lasts, token, fences)}

-- KEYS: lock queue waiters fence limits
-- Answers: {type, holders, waiters, fence, limit}, where holders is {value, milliseconds left, ...}
--          and the limit the smallest that a holder of a permit allows, or 0
-- Writes nothing.
local lock, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local now = millis()
local kind = redis.call('TYPE', lock).ok
local holders = {}
if kind == 'string' then
  holders = {redis.call('GET', lock), redis.call('PTTL', lock)}
elseif #kind_at(lock) == 1 then
  local all = redis.call('ZRANGE', lock, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    local left = tonumber(all[i + 1]) - now
    if left > 0 then
      holders[#holders + 1] = all[i]
      holders[#holders + 1] = left
    end
  end
elseif kind ~= 'none' then
  kind = 'foreign'
end
local waiting = {}
for _, token in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
  local place = redis.call('HGET', waiters, token)
  if place and tonumber(string.match(place, '^%d+')) > now then waiting[#waiting + 1] = token end
end
local limit = redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')[2]
return {kind, holders, waiting, redis.call('GET', KEYS[4]) or '', tonumber(limit or 0)}

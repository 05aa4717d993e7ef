-- KEYS: lock queue waiters fence limits
-- ARGV: most
-- Answers: {type, holders, waiters, fence, limit, more holders, more waiters, digest}, where holders
--          is {value, milliseconds left}, or {member, milliseconds left, slot or -1, ...} of a set, of holders
--          and waiters no more than `most` are shown, the limit is the smallest that a holder of a permit
--          allows, or 0, and the digest names the value of another program
-- Writes nothing.
most = tonumber(most)
local now, kind, name = millis(), kind_at(lock), ''
local holders, more = {}, 0
if kind == 'string' then
  local value = redis.call('GET', lock)
  holders = {shown(value), redis.call('PTTL', lock)}
  if not is_ours(value) then name = digest(value) end
elseif #kind == 1 then
  kind = 'zset'
  local living = '(' .. string.format('%.0f', now)
  local all = redis.call('ZRANGEBYSCORE', lock, living, '+inf', 'WITHSCORES', 'LIMIT', 0, most)
  for i = 1, #all, 2 do
    holders[#holders + 1] = string.sub(all[i], 1, MOST_TOKEN + 2)
    local finish, slot = end_and_slot(all[i + 1])
    holders[#holders + 1] = finish - now
    holders[#holders + 1] = slot or -1
  end
  more = redis.call('ZCOUNT', lock, living, '+inf') - #all / 2
elseif kind ~= 'none' then
  kind = 'foreign'
end
local waiters_shown, count = {}, waiting(queue, waiters)
if count > 0 then
  for _, token in ipairs(redis.call('ZRANGE', queue, 0, most - 1)) do
    local place = redis.call('HGET', waiters, token)
    if place and tonumber(string.match(place, '^%d+') or 0) > now then
      waiters_shown[#waiters_shown + 1] = string.sub(token, 1, MOST_TOKEN)
    end
  end
end
local limit = (try('ZRANGE', limits, 0, 0, 'WITHSCORES') or {})[2]
return {
  kind, holders, waiters_shown, string.sub(try('GET', fence) or '', 1, MOST_TOKEN + 20), tonumber(limit or 0),
  more, math.max(count - most, 0), name,
}

-- KEYS: lock queue waiters limits
-- EACH KEYS: tombstone
-- ARGV: mode limit place channel
-- EACH ARGV: token
-- Answers: {} each is to be asked for by itself; {left, holder, other limit, numbers} busy as in
--          shared_acquire.lua, but for those whose numbers are there: i is to be asked for by itself,
--          -i is one of the first in the queue
-- Lets many places in a queue last, while nobody can be let in.
limit, place = tonumber(limit), tonumber(place)
local now = millis()
if stranger(lock, mode) or waiting(queue, waiters) == 0 then return {} end
purge(lock, limits, mode, now)
local tombstones, tokens = {}, {}
for i = 1, count do tombstones[i], tokens[i] = each(i) end
if fits(lock, limits, mode, limit) or redis.call('EXISTS', unpack(tombstones)) > 0 then
  settle(lock, limits)
  return {}
end
local near = {}
for _, token in ipairs(redis.call('ZRANGE', queue, 0, count - 1)) do near[token] = true end
local tickets = redis.call('ZMSCORE', queue, unpack(tokens))
local entry = string.format('%.0f', now + place) .. '/' .. mode .. decimal(limit) .. ' ' .. channel
local odd, fields = {}, {}
for i, token in ipairs(tokens) do
  if not tickets[i] then
    odd[#odd + 1] = i
  else
    fields[#fields + 1], fields[#fields + 2] = token, entry
    if near[token] then odd[#odd + 1] = -i end
  end
end
-- At maxmemory a place may not be noted anew; then each asks by itself, and learns what that means.
if #fields == 0 or not write(queue, waiters, '', true, 'HSET', waiters, unpack(fields)) then
  return {}
end
for _, side in ipairs({queue, waiters}) do
  if redis.call('PTTL', side) < place + 1000 then redis.call('PEXPIRE', side, place + 1000) end
end
settle(lock, limits)
local which = mode == 'p' and 0 or -1
local holder = redis.call('ZRANGE', lock, which, which, 'WITHSCORES')
if not holder[2] then return {} end
local left = math.max(tonumber(holder[2]) - now, 1)
return {left, string.sub(holder[1], 3), other_limit(limits, limit), odd}

-- KEYS: lock queue waiters limits
-- ARGV: mode limit place channel
-- EACH ARGV: token
-- Answers: {} each is to be asked for by itself; {left, holder, other limit, numbers} busy as in
--          shared_acquire.lua, but for those whose numbers are there: i is to be asked for by itself,
--          -i is one of the first in the queue
-- Lets many places in a queue last, while nobody can be let in. Tombstones are not looked for: whatever
-- leaves one for a token also takes it out of the queue.
limit, place = tonumber(limit), tonumber(place)
local now = millis()
if stranger(lock, mode) then return {} end
local many = waiting(queue, waiters)
if many == 0 then return {} end
purge(lock, limits, mode, now)
if fits(lock, limits, mode, limit) then
  settle(lock, limits)
  return {}
end
local entry = string.format('%.0f', now + place) .. '/' .. mode .. decimal(limit) .. ' ' .. channel
local tokens, fields = {}, {}
for i = 1, count do
  local token = each(i)
  tokens[i], fields[2 * i - 1], fields[2 * i] = token, token, entry
end
-- Whoever is in the queue has an entry, so where there are as many of one as of the other, an entry that
-- is not new belongs to somebody in the queue. To ask for all tickets costs half as much again.
local in_step = redis.pcall('HLEN', waiters) == many
-- At maxmemory a place may not be noted anew; what that means, each is told by itself.
local added = write(queue, waiters, '', true, 'HSET', waiters, unpack(fields))
if not added then return {} end
local odd, strays = {}, {}
if added > 0 or not in_step then
  for i, token in ipairs(tokens) do
    -- Servers before Redis 6.2 know no ZMSCORE.
    if not redis.call('ZSCORE', queue, token) then odd[#odd + 1], strays[#strays + 1] = i, token end
  end
  if #strays > 0 then redis.call('HDEL', waiters, unpack(strays)) end
end
if #strays == count then return {} end
local near = {}
for _, token in ipairs(redis.call('ZRANGE', queue, 0, MOST - 1)) do near[token] = true end
for i, token in ipairs(tokens) do
  if near[token] then odd[#odd + 1] = -i end
end
for _, side in ipairs({queue, waiters}) do
  if redis.call('PTTL', side) < place + 1000 then redis.call('PEXPIRE', side, decimal(place + 1000)) end
end
settle(lock, limits)
local which = mode == PERMIT and 0 or -1
local holder = redis.call('ZRANGE', lock, which, which, 'WITHSCORES')
if not holder[2] then return {} end
local left = math.max(tonumber(holder[2]) - now, 1)
return {left, shown(string.sub(holder[1], 3)), other_limit(limits, limit), odd}

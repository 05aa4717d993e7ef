-- KEYS: tomb, and of each key in the order of their names: lock queue waiters fence
-- ARGV: token ttl place channel fair fences repair mark claim ordered
-- Answers: as acquire.lua, about the first key that somebody else has
local token, ttl, place, channel = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local mark, claim, ordered = ARGV[8], ARGV[9], ARGV[10] == '1'
local count = (#KEYS - 1) / 4
if redis.call('EXISTS', KEYS[1]) == 1 then return {-2} end
local function key(i) return KEYS[4 * i - 2], KEYS[4 * i - 1], KEYS[4 * i], KEYS[4 * i + 1] end

local mine, rival = {}, nil
for i = 1, count do
  local lock, queue, waiters = key(i)
  local holder = redis.pcall('GET', lock)
  if type(holder) == 'table' then return {-4, kind_at(lock)} end
  mine[i] = holder == token or holder == token .. '+'
  if holder and not mine[i] then
    local left, repaired = redis.call('PTTL', lock), 0
    if left == -1 and string.sub(holder, 1, 5) ~= 'rl1.n' then
      if ARGV[7] == '0' then return {-3, holder} end
      redis.call('PEXPIRE', lock, ARGV[7])
      left, repaired = tonumber(ARGV[7]), 1
    end
    rival = rival or {at = i, holder = holder, left = left, repaired = repaired}
  elseif not holder and ARGV[5] == '1' then
    local first = grant(lock, queue, waiters, claim, mark, token)
    if first and first ~= token then
      rival = rival or {at = i, holder = first, left = tonumber(claim), repaired = 0}
    end
  end
end

for i = 1, count do
  local lock, queue, waiters = key(i)
  if not (rival and rival.at == i and place > 0) then leave(queue, waiters, token) end
  if not rival and mine[i] then
    lengthen(lock, tonumber(ttl))
  elseif not rival then
    redis.call('SET', lock, value_of(queue, token, mark), 'PX', ttl)
  elseif ordered and place > 0 and i < rival.at then
    -- What is kept while waiting lasts as long as the place in the queue.
    redis.call('SET', lock, value_of(queue, token, mark), 'PX', place)
  elseif mine[i] then
    give_back(lock, queue, waiters, claim, mark)
  end
end

if rival then
  local lock, queue, waiters = key(rival.at)
  -- A full server refuses to note one more waiter; it will look by itself, and is no less busy.
  local queued = place > 0 and pcall(enqueue, queue, waiters, token, place, channel)
  if queued then ask_to_hand_over(lock, mark, channel) end
  return {0, rival.left, rival.holder, queued and 1 or 0, rival.repaired}
end
if ARGV[6] == '0' then return {1, ''} end
local fences = {}
for i = 1, count do fences[i] = KEYS[4 * i + 1] end
return {1, number_of_all(fences, token, tonumber(ARGV[6]))}

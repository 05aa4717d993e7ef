-- KEYS: lock queue waiters fence tomb
-- ARGV: token ttl place channel fair fences repair mark claim
-- Answers: {1, fence} ours; {0, pttl, holder, queued, repaired} busy; {-2} buried;
--          {-3, holder} a foreign value without ttl; {-4, kind} another kind of lock stands there
local lock, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local token, ttl, place, channel = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local mark, claim = ARGV[8], ARGV[9]
if redis.call('EXISTS', KEYS[5]) == 1 then return {-2} end

local function busy(holder, left, repaired)
  -- A full server refuses to note one more waiter; it will look by itself, and is no less busy.
  local queued = place > 0 and pcall(enqueue, queue, waiters, token, place, channel)
  if queued then ask_to_hand_over(lock, mark, channel) end
  return {0, left, holder, queued and 1 or 0, repaired}
end

local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then return {-4, kind_at(lock)} end
local mine = holder == token or holder == token .. '+'
if holder and not mine then
  local left = redis.call('PTTL', lock)
  if left == -1 and string.sub(holder, 1, 5) ~= 'rl1.n' then
    if ARGV[7] == '0' then return {-3, holder} end
    redis.call('PEXPIRE', lock, ARGV[7])
    return busy(holder, tonumber(ARGV[7]), 1)
  end
  return busy(holder, left, 0)
end
if mine then
  if ttl == '0' then redis.call('PERSIST', lock) else lengthen(lock, tonumber(ttl)) end
  leave(queue, waiters, token)
else
  if ARGV[5] == '1' then
    local first = grant(lock, queue, waiters, claim, mark, token)
    if first and first ~= token then return busy(first, tonumber(claim), 0) end
  end
  leave(queue, waiters, token)
  local value = token
  if mark == '1' and redis.call('EXISTS', queue) == 1 then value = token .. '+' end
  if ttl == '0' then redis.call('SET', lock, value) else redis.call('SET', lock, value, 'PX', ttl) end
end
if ARGV[6] == '0' then return {1, ''} end
return {1, number(KEYS[4], token, tonumber(ARGV[6]), false)}

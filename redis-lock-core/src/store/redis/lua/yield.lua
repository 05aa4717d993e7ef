-- KEYS: lock queue waiters fence tomb
-- ARGV: token next ttl place channel fences mark claim
-- Answers: {1, fence} kept; {2} handed over, `next` is queued; {0, reason} or {-1, holder} not ours
local lock, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local token, next_token, ttl = ARGV[1], ARGV[2], ARGV[3]
local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then holder = '(a value of another type)' end
if holder ~= token and holder ~= token .. '+' then
  -- Whoever ended the hold by force may have given the lock to the next already.
  local reason = redis.call('GET', KEYS[5]) or ''
  if holder and reason == '' then return {-1, holder} end
  return {0, reason}
end
if redis.call('EXISTS', queue) == 1 then
  local left = redis.call('PTTL', lock)
  enqueue(queue, waiters, next_token, tonumber(ARGV[4]), ARGV[5])
  if grant(lock, queue, waiters, ARGV[8], ARGV[7], next_token) ~= next_token then return {2} end
  -- All who came before are dead.
  leave(queue, waiters, next_token)
  local value = token
  if ARGV[7] == '1' and redis.call('EXISTS', queue) == 1 then value = token .. '+' end
  redis.call('SET', lock, value, 'PX', math.max(tonumber(ttl), left))
else
  lengthen(lock, tonumber(ttl))
end
if ARGV[6] == '0' then return {1, ''} end
return {1, number(KEYS[4], token, tonumber(ARGV[6]), true)}

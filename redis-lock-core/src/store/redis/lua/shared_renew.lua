-- KEYS: lock limits tomb
-- ARGV: mode token ttl how
-- Answers: 1 ours; {1, left, 0} as renew.lua; {0, reason} nothing there; {-1, holder} something else
--          stands there
local lock, limits = KEYS[1], KEYS[2]
local token, ttl = ARGV[2], tonumber(ARGV[3])
local reason = redis.call('GET', KEYS[3]) or ''
if reason ~= '' then return {0, reason} end
if stranger(lock, ARGV[1]) then return {-1, '(another kind of value)'} end
local now = millis()
local mode = mode_of(lock, ARGV[1], token)
local finish = mode and tonumber(redis.call('ZSCORE', lock, mode .. ':' .. token))
if not finish or finish <= now then return {0, ''} end
if ARGV[4] == 'look' then return 1 end
if ARGV[4] == 'set' or finish < now + ttl then
  go_on_at_maxmemory(lock)
  redis.call('ZADD', lock, text(now + ttl), mode .. ':' .. token)
  settle(lock, limits)
elseif finish > now + ttl + 1000 then
  return {1, finish - now, 0}
end
return 1

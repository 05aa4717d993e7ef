-- KEYS: lock limits tomb
-- ARGV: mode token ttl (0: only look)
-- Answers: {1} ours; {0, reason} nothing there; {-1, holder} something else stands there
local lock, limits = KEYS[1], KEYS[2]
local token, ttl = ARGV[2], tonumber(ARGV[3])
local reason = redis.call('GET', KEYS[3]) or ''
if reason ~= '' then return {0, reason} end
if stranger(lock, ARGV[1]) then return {-1, '(another kind of value)'} end
local now = millis()
local mode = mode_of(lock, ARGV[1], token)
local finish = mode and tonumber(redis.call('ZSCORE', lock, mode .. ':' .. token))
if not finish or finish <= now then return {0, ''} end
if ttl > 0 then
  go_on_at_maxmemory(lock)
  redis.call('ZADD', lock, text(now + ttl), mode .. ':' .. token)
  settle(lock, limits)
end
return {1}

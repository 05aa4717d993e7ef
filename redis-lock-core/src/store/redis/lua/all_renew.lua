-- KEYS: of each key: lock tomb
-- ARGV: token ttl (0: only look)
-- Answers: as renew.lua; all are renewed, or none
local token = ARGV[1]
for i = 1, #KEYS, 2 do
  local holder = redis.pcall('GET', KEYS[i])
  if holder ~= token and holder ~= token .. '+' then
    local reason = redis.call('GET', KEYS[i + 1]) or ''
    -- Whoever ended the hold by force may have given the key to the next already.
    if reason ~= '' or not holder then return {0, reason} end
    return {-1, type(holder) == 'string' and holder or '(a value of another type)'}
  end
end
if ARGV[2] ~= '0' then
  for i = 1, #KEYS, 2 do redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
end
return {1}

-- KEYS: lock tomb
-- ARGV: token ttl (0: only look)
-- Answers: 1 ours; {0, reason} nothing there; {-1, holder} somebody else has it
local holder = redis.pcall('GET', KEYS[1])
if holder == ARGV[1] or holder == ARGV[1] .. '+' then
  if ARGV[2] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
  return 1
end
-- Whoever ended the hold by force may have given the lock to the next already.
local reason = redis.call('GET', KEYS[2]) or ''
if reason ~= '' then return {0, reason} end
if type(holder) == 'string' then return {-1, holder} end
if holder then return {-1, '(a value of another type)'} end
return {0, ''}

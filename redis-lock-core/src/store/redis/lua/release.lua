-- KEYS: lock queue waiters tomb
-- ARGV: token keep bury claim mark brief
-- Answers: 1 released; {0, reason} nothing there; {-1, holder} somebody else has it; 0 for both of
--          these when `brief` is 1
local lock, queue, waiters, tomb = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token = ARGV[1]
local holder = redis.pcall('GET', lock)
local answer
if holder == token or holder == token .. '+' then
  if ARGV[2] ~= '0' then
    redis.call('PEXPIRE', lock, ARGV[2])
  elseif redis.call('EXISTS', queue) == 0 or not grant(lock, queue, waiters, ARGV[4], ARGV[5]) then
    redis.call('DEL', lock)
  end
  answer = 1
else
  leave(queue, waiters, token)
  -- Whoever ended the hold by force may have given the lock to the next already.
  local reason = redis.call('GET', tomb) or ''
  if reason ~= '' then
    answer = {0, reason}
  elseif type(holder) == 'string' then
    answer = {-1, holder}
  elseif holder then
    answer = {-1, '(a value of another type)'}
  else
    answer = {0, ''}
  end
end
if ARGV[3] ~= '0' then redis.pcall('SET', tomb, '', 'PX', ARGV[3]) end
if ARGV[6] == '1' and answer ~= 1 then return 0 end
return answer

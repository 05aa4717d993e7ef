-- KEYS: tomb, and of each key: lock queue waiters
-- ARGV: token keep bury claim mark
-- Answers: as release.lua; what is ours is released, whatever has become of the rest
local token = ARGV[1]
local answer = {1}
for i = 2, #KEYS, 3 do
  local lock, queue, waiters = KEYS[i], KEYS[i + 1], KEYS[i + 2]
  local holder = redis.pcall('GET', lock)
  if holder == token or holder == token .. '+' then
    if ARGV[2] ~= '0' then
      redis.call('PEXPIRE', lock, ARGV[2])
    else
      give_back(lock, queue, waiters, ARGV[4], ARGV[5])
    end
  else
    leave(queue, waiters, token)
    if type(holder) == 'string' then
      answer = {-1, holder}
    elseif holder then
      answer = {-1, '(a value of another type)'}
    elseif answer[1] == 1 then
      answer = {0, redis.call('GET', KEYS[1]) or ''}
    end
  end
end
if ARGV[3] ~= '0' then redis.pcall('SET', KEYS[1], '', 'PX', ARGV[3]) end
return answer

-- KEYS: of each key: lock queue waiters tomb
-- ARGV: token keep bury claim mark
-- Answers: as release.lua; what is ours is released, whatever has become of the rest
local token = ARGV[1]
local answer = {1}
for i = 1, #KEYS, 4 do
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
    -- Whoever ended the hold by force may have given the key to the next already.
    local reason = redis.call('GET', KEYS[i + 3]) or ''
    if reason ~= '' then
      answer = {0, reason}
    elseif type(holder) == 'string' then
      answer = {-1, holder}
    elseif holder then
      answer = {-1, '(a value of another type)'}
    elseif answer[1] == 1 then
      answer = {0, ''}
    end
  end
end
if ARGV[3] ~= '0' then redis.pcall('SET', KEYS[4], '', 'PX', ARGV[3]) end
return answer

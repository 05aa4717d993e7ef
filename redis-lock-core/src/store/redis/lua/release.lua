-- KEYS: lock queue waiters tomb
-- ARGV: token keep bury claim brief
-- Answers: 1 released; {0, reason} nothing there; {-1, holder} somebody else has it; 0 for both of
--          these when `brief` is 1
local holder = try('GET', lock)
local answer = 1
if not has(holder, token) then
  leave(queue, waiters, token)
  answer = gone(holder, tomb)
elseif keep ~= '0' then
  redis.call('PEXPIRE', lock, keep)
else
  give_back(lock, queue, waiters, claim)
end
entomb(tomb, bury)
if brief == '1' and answer ~= 1 then return 0 end
return answer

-- KEYS: lock queue waiters tombstone
-- ARGV: token keep mark tombstone_time claim
-- Answers: 1 released; {0, reason} nothing there; {-1, holder} somebody else has it
local holder = try('GET', lock)
local answer = 1
if not has(holder, token) then
  leave(queue, waiters, token)
  answer = gone(holder, tombstone)
elseif keep ~= '0' then
  keep_by(mark, lock, queue, waiters, keep)
else
  give_back(lock, queue, waiters, claim)
end
leave_tombstone(tombstone, tombstone_time)
return answer

-- EACH KEYS: lock queue waiters tombstone
-- ARGV: token keep mark tombstone_time claim
-- Answers: as release.lua; what is ours is released, whatever has become of the rest
local answer = {1}
for i = 1, count do
  local lock, queue, waiters, tombstone = each(i)
  local holder = try('GET', lock)
  if not has(holder, token) then
    leave(queue, waiters, token)
    local why = gone(holder, tombstone)
    -- A reason says most, then who has it now.
    if answer[1] == 1 or why[1] == -1 and (answer[2] or '') == '' or why[1] == 0 and why[2] ~= '' then
      answer = why
    end
  elseif keep ~= '0' then
    keep_by(mark, lock, queue, waiters, keep)
  else
    give_back(lock, queue, waiters, claim)
  end
end
local _, _, _, tombstone = each(1)
leave_tombstone(tombstone, tombstone_time)
return answer

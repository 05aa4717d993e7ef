-- KEYS: lock queue waiters tombstone shared
-- ARGV: token keep mark tombstone_time claim text time
-- Answers: as release.lua
-- Gives the lock back, and says in the same step which of those who wait get the value of the hold.
local MOST_SHARING = 256

-- A token says that it shares by a flag behind its label.
local function entitle(now)
  if type(redis.pcall('HLEN', shared)) ~= 'number' then return end
  local some = false
  for _, waiter in ipairs(try('ZRANGE', queue, 0, MOST_SHARING - 1) or {}) do
    if string.find(waiter, '%s', 1, true) then
      local finish, channel = string.match(try('HGET', waiters, waiter) or '', '^(%d+) (.*)$')
      if finish and tonumber(finish) > now and #waiter <= MOST_TOKEN and may_live(channel) then
        redis.call('HSET', shared, waiter, '')
        leave(queue, waiters, waiter)
        tell(channel, 'g ' .. waiter)
        some = true
      end
    end
  end
  if not some then return end
  redis.call('HSET', shared, '', text)
  redis.call('PEXPIRE', shared, time)
end

local holder = try('GET', lock)
local answer = 1
if not has(holder, token) then
  leave(queue, waiters, token)
  answer = gone(holder, tombstone)
else
  -- At maxmemory only a script that has deleted something may write.
  redis.call('DEL', lock)
  entitle(millis())
  if keep ~= '0' then
    keep_by(mark, lock, queue, waiters, keep)
  else
    give_back(lock, queue, waiters, claim)
  end
end
leave_tombstone(tombstone, tombstone_time)
return answer

-- The queue of a lock: a sorted set of tokens by ticket, and a hash from token to
-- "<end of its place in ms> <channel>". A channel of "-" means that its waiter looks by itself.

local function millis()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Puts a token at the end of the queue, or keeps its place for longer.
local function enqueue(queue, waiters, token, place, channel)
  if not redis.call('ZSCORE', queue, token) then
    local time = redis.call('TIME')
    local ticket = time[1] * 1000000 + time[2]
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
    -- The server's clock may have been set back; the order must not follow it.
    if last and tonumber(last) >= ticket then ticket = tonumber(last) + 1 end
    redis.call('ZADD', queue, string.format('%.0f', ticket), token)
  end
  redis.call('HSET', waiters, token, string.format('%.0f %s', millis() + place, channel))
  redis.call('PEXPIRE', queue, place + 1000)
  redis.call('PEXPIRE', waiters, place + 1000)
end

local function leave(queue, waiters, token)
  if redis.call('ZREM', queue, token) == 1 then redis.call('HDEL', waiters, token) end
end

-- Makes the first living waiter the owner and tells it. Returns its token, or false when nobody
-- waits. Stops at `me`, without making it the owner, when `me` comes first.
local function grant(lock, queue, waiters, claim, mark, me)
  while true do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head then return false end
    if head == me then return me end
    local place = redis.call('HGET', waiters, head)
    leave(queue, waiters, head)
    if place then
      local gap = string.find(place, ' ', 1, true)
      local channel = string.sub(place, gap + 1)
      if tonumber(string.sub(place, 1, gap - 1)) > millis() then
        local value = head
        if mark == '1' and redis.call('EXISTS', queue) == 1 then value = head .. '+' end
        redis.call('SET', lock, value, 'PX', claim)
        if channel == '-' then return head end
        -- Denied publishing must not fail what was done already: the waiter will look by itself.
        local heard = redis.pcall('PUBLISH', channel, 'g ' .. head)
        if type(heard) == 'table' or heard > 0 then return head end
      end
    end
  end
end

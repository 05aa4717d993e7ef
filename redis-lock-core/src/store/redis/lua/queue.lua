-- The queue of a lock: a sorted set of tokens by ticket, and a hash from token to
-- "<end of its place in ms> <channel>". A channel of "-" means that its waiter looks by itself.
-- Waiters for a lock that several can hold say after the end what they want; see shared.lua.

local function millis()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Lets a key last for so long, unless it lasts longer: somebody may believe in that.
local function lengthen(lock, ttl)
  local left = redis.call('PTTL', lock)
  if left >= 0 and left < ttl then redis.call('PEXPIRE', lock, ttl) end
end

-- Puts a token at the end of the queue, or keeps its place for longer.
local function enqueue(queue, waiters, token, place, channel, sort)
  if not redis.call('ZSCORE', queue, token) then
    local time = redis.call('TIME')
    local ticket = time[1] * 1000000 + time[2]
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
    -- The server's clock may have been set back; the order must not follow it.
    if last and tonumber(last) >= ticket then ticket = tonumber(last) + 1 end
    redis.call('ZADD', queue, string.format('%.0f', ticket), token)
  end
  local finish = string.format('%.0f', millis() + place)
  redis.call('HSET', waiters, token, finish .. (sort or '') .. ' ' .. channel)
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
      -- Who waits for another kind of lock finds out by itself that the kinds don't mix.
      local finish = tonumber(string.sub(place, 1, gap - 1))
      if finish and finish > millis() then
        -- Denied publishing must not fail what is done: the waiter will look by itself.
        local value = head
        if mark == '1' and redis.call('EXISTS', queue) == 1 then value = head .. '+' end
        local heard = channel == '-' or redis.pcall('PUBLISH', channel, 'g ' .. value)
        if type(heard) ~= 'number' or heard > 0 then
          redis.call('SET', lock, value, 'PX', claim)
          return head
        end
      end
    end
  end
end

-- Marks the holder's value, so that its release finds out that somebody waits, and tells it: then it
-- need not find out. `channel` is that of whoever waits.
local function ask_to_hand_over(lock, mark, channel)
  if mark ~= '1' then return end
  local holder = redis.call('GET', lock)
  if holder and string.sub(holder, 1, 4) == 'rl1.' and string.sub(holder, -1) ~= '+' then
    redis.pcall('SET', lock, holder .. '+', 'KEEPTTL')
    local base = string.match(channel, '^(.*~m:)')
    local manager = string.match(holder, '^rl1%.n?%x+%.(%x+)%.')
    if base and manager then redis.pcall('PUBLISH', base .. manager, 'w ' .. lock) end
  end
end

-- What stands at a key that holds no string: the mode of a lock that several can hold, or a type.
local function kind_at(lock)
  local kind = redis.call('TYPE', lock).ok
  local member = kind == 'zset' and redis.call('ZRANGE', lock, 0, 0)[1] or ''
  return string.match(member, '^([rwp]):rl1%.') or kind
end

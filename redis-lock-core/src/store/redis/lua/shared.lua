-- Locks that several can hold at once: a sorted set at the main key, of "<mode>:<token>" by the end
-- of each lease in ms of the server's clock. Modes: "r" reads, "w" writes, "p" has a permit. The key
-- itself ends with the last of them. A waiter's entry has "/<mode><limit>" after its end. The limits
-- that holders of permits asked for are a sorted set of tokens beside it.

local function text(number) return string.format('%.0f', number) end

local function family(mode) return mode == 'p' and 'p' or 'rw' end

-- What stands in the way although nobody of this family holds the lock: an answer that names it.
local function stranger(lock, mode)
  local kind = redis.call('TYPE', lock).ok
  if kind == 'none' then return nil end
  if kind == 'string' and string.sub(redis.call('GET', lock), 1, 4) == 'rl1.' then
    return {-4, 'm'}
  end
  local theirs = kind_at(lock)
  if #theirs == 1 and family(theirs) == family(mode) then return nil end
  return {-4, theirs}
end

-- At maxmemory a script may write what needs memory only after another write. Who has the lock
-- must be able to keep it and to give it away, so such scripts begin with this.
local function go_on_at_maxmemory(lock) redis.call('ZREM', lock, '') end

-- Lets the key, and the limits beside it, end with the last holder.
local function settle(lock, limits)
  local last = redis.call('ZRANGE', lock, -1, -1, 'WITHSCORES')[2]
  if last then
    redis.call('PEXPIREAT', lock, last)
    redis.call('PEXPIREAT', limits, last)
  end
end

local function put(lock, limits, mode, token, limit, finish)
  redis.call('ZADD', lock, text(finish), mode .. ':' .. token)
  if mode == 'p' then redis.call('ZADD', limits, limit, token) end
end

local function drop(lock, limits, mode, token)
  redis.call('ZREM', lock, mode .. ':' .. token)
  if mode == 'p' then redis.call('ZREM', limits, token) end
end

-- Removes those whose lease has ended. Writes nothing when there is none.
local function purge(lock, limits, now)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', lock, '-inf', text(now))) do
    drop(lock, limits, string.sub(member, 1, 1), string.sub(member, 3))
  end
end

-- The mode that a token holds the lock in; a writer may have become a reader.
local function mode_of(lock, mode, token)
  if redis.call('ZSCORE', lock, mode .. ':' .. token) then return mode end
  if mode == 'w' and redis.call('ZSCORE', lock, 'r:' .. token) then return 'r' end
  return nil
end

-- Whether one more fits beside those who hold now.
local function fits(lock, limits, mode, limit)
  if mode == 'p' then
    local least = redis.call('ZRANGE', limits, 0, 0, 'WITHSCORES')[2]
    return redis.call('ZCARD', lock) < math.min(limit, tonumber(least or limit))
  end
  local holder = redis.call('ZRANGE', lock, 0, 0)[1]
  return not holder or mode == 'r' and string.sub(holder, 1, 1) == 'r'
end

-- Whether a waiter may be there: one that looks by itself, and one whose channel is listened to, or
-- where we may not find that out.
local function may_live(channel)
  if channel == '-' then return true end
  local heard = redis.pcall('PUBSUB', 'NUMSUB', channel)
  return heard.err ~= nil or heard[2] ~= 0
end

-- Lets waiters in, from the first on, while they fit. Returns whether nobody is left before `me`.
local function admit(lock, queue, waiters, limits, mode, now, claim, me)
  while true do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head or head == me then return true end
    local place = redis.call('HGET', waiters, head) or ''
    local finish, theirs, limit, channel = string.match(place, '^(%d+)/(%a)(%d+) (.*)$')
    local lives = finish and tonumber(finish) > now and family(theirs) == family(mode)
    if lives and not fits(lock, limits, theirs, tonumber(limit)) then
      if may_live(channel) then return false end
      lives = false
    end
    leave(queue, waiters, head)
    if lives then
      local heard = 1
      -- A waiter that hears nothing looks by itself; one that nobody hears is dead.
      if channel ~= '-' then heard = redis.pcall('PUBLISH', channel, 'g ' .. head) end
      if type(heard) == 'table' or heard > 0 then
        put(lock, limits, theirs, head, limit, now + claim)
      end
    end
  end
end

-- Somebody else's limit that differs from `limit`, or 0.
local function other_limit(limits, limit)
  local least = redis.call('ZRANGE', limits, 0, 0, 'WITHSCORES')[2]
  if least and tonumber(least) < limit then return tonumber(least) end
  local most = redis.call('ZRANGE', limits, -1, -1, 'WITHSCORES')[2]
  if most and tonumber(most) > limit then return tonumber(most) end
  return 0
end

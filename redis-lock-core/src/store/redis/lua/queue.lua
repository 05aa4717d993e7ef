-- The queue of a lock: a sorted set of tokens by ticket, and a hash from token to
-- "<end of its place in ms> <channel>". A channel of "-" means that its waiter looks by itself.
-- Waiters for a lock that several can hold say after the end what they want; see shared.lua.
-- Where values of another program stand at these keys, the lock works as if nobody could queue.

-- How many wait, dead ones included.
local function waiting(queue, waiters)
  local count = try('ZCARD', queue) or 0
  if count > 0 and try('HGET', waiters, '') == nil then return 0 end
  return count
end

-- Runs a command that writes for a queue. Where it is refused, the token is taken out again unless it
-- was there before, since no side key may stay without an end; then the script ends with the server's
-- error. Returns its answer, or false when memory is refused.
local function write(queue, waiters, token, known, ...)
  local done = redis.pcall(...)
  if type(done) ~= 'table' or not done.err then return done end
  if not known then
    redis.pcall('ZREM', queue, token)
    redis.pcall('HDEL', waiters, token)
  end
  return not is_oom(done.err) and redis.call(...)
end

-- The next ticket. The server's clock may have been set back; the order must not follow it.
local function ticket(queue)
  local time = redis.call('TIME')
  local next_one = time[1] * 1000000 + time[2]
  local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
  if last and tonumber(last) >= next_one then next_one = tonumber(last) + 1 end
  return string.format('%.0f', next_one)
end

-- Puts a token at the end of the queue, or keeps its place for longer. Returns 1 when it is
-- there, and else 0. A full server refuses to note one more waiter, which then looks by itself.
local function enqueue(queue, waiters, token, place, channel, sort)
  if try('ZCARD', queue) == nil or try('HGET', waiters, token) == nil then return 0 end
  local known = redis.call('ZSCORE', queue, token)
  local function put(...) return write(queue, waiters, token, known, ...) end
  if not known and not put('ZADD', queue, ticket(queue), token) then return 0 end
  local finish = string.format('%.0f', millis() + place)
  if not put('HSET', waiters, token, finish .. (sort or '') .. ' ' .. channel) then
    return known and 1 or 0
  end
  for _, side in ipairs({queue, waiters}) do
    if redis.call('PTTL', side) < place + 1000 then put('PEXPIRE', side, decimal(place + 1000)) end
  end
  return 1
end

local function leave(queue, waiters, token)
  if try('ZSCORE', queue, token) then
    redis.call('ZREM', queue, token)
    try('HDEL', waiters, token)
  end
end

-- Queues a token that can't have the lock now; without a place it is taken out of the queue, by a
-- command that writes: a server that can't write must say so, and not that the lock is busy. Returns what
-- `enqueue` does.
local function line_up(queue, waiters, token, place, channel, sort)
  if place > 0 then return enqueue(queue, waiters, token, place, channel, sort) end
  if try('ZREM', queue, token) == 1 then try('HDEL', waiters, token) end
  return 0
end

-- A channel with a tag in it is a sharded one: its messages go to a single node.
local function is_sharded(channel) return string.find(channel, '}~m:', 1, true) ~= nil end

-- A sharded channel whose slot is at another node can't be published to here: a queue that came with
-- its slot names such. Whoever listens to it listens to a plain one as well, which reaches all nodes;
-- nobody is counted then.
local function publish(channel, message)
  if not is_sharded(channel) then return redis.pcall('PUBLISH', channel, message) end
  local heard = redis.pcall('SPUBLISH', channel, message)
  if type(heard) ~= 'number' then
    redis.pcall('PUBLISH', (string.gsub(channel, '{%d+}~m:', '~m:', 1)), message)
  end
  return heard
end

-- Whether somebody listens. A sharded channel whose slot is at another node has no listener here, and
-- nothing is known of it.
local function is_heard(channel)
  local sharded = is_sharded(channel)
  local heard = redis.pcall('PUBSUB', sharded and 'SHARDNUMSUB' or 'NUMSUB', channel)
  if heard.err ~= nil or heard[2] ~= 0 then return true end
  return sharded and type(redis.pcall('SPUBLISH', channel, '')) ~= 'number'
end

-- The manager that a token belongs to.
local function manager_of(token) return string.match(token, '^rl1%.n?%x+%.([^.]+)%.') end

-- The manager that asks for the lock now. After a lost connection it may ask before it listens again, and by
-- no channel then: its waiters are alive.
local asker
local function is_own(token) return asker ~= nil and manager_of(token) == asker end

-- Whether a waiter may be there: one that looks by itself, and one whose channel somebody listens
-- to. A subscription to a pattern does not count, since anybody may have that.
local listened = {}
local function may_live(channel)
  if channel == '-' then return true end
  if listened[channel] == nil then listened[channel] = is_heard(channel) end
  return listened[channel]
end

-- Tells a waiter; false when it is dead. Denied publishing must not fail what is done: the waiter
-- will look by itself. A sharded channel has no patterns, so whoever gets its message listens to it.
local function tell(channel, message)
  if channel == '-' then return true end
  if not is_sharded(channel) and not may_live(channel) then return false end
  local heard = publish(channel, message)
  return type(heard) ~= 'number' or heard > 0
end

-- Has the waiter for a mutex that has this place look. Nobody is told of a place that has ended.
local function wake(place, token)
  local finish, channel = string.match(place, '^(%d+) (.*)$')
  if finish and tonumber(finish) > millis() then tell(channel, 'g ' .. token) end
end

-- A place of a token that does not wait lasts no longer, in ms.
local ASK = 200

-- How many wait, when these are so many that a token may not, which is taken out then. Nothing of a full server
-- or of another program is counted, and no place that ends as soon as those of tokens which don't wait. The
-- dead among the first are removed.
local function crowd_of(queue, waiters, token, most)
  local count = waiting(queue, waiters)
  if most == 0 or count < most then return nil end
  local now = millis()
  local function finish_of(place) return tonumber(string.match(place or '', '^%d+') or 0) end
  local function counts(place) return finish_of(place) > now + ASK end
  if counts(redis.call('HGET', waiters, token)) and redis.call('ZSCORE', queue, token) then return nil end
  line_up(queue, waiters, token, 0)
  count = redis.call('ZCARD', queue)
  for _, head in ipairs(redis.call('ZRANGE', queue, 0, MOST - 1)) do
    local place = redis.call('HGET', waiters, head)
    local channel = string.match(place or '', '^%d+%S* (.*)$')
    local lives = channel and finish_of(place) > now and #head <= MOST_TOKEN
    lives = lives and (is_own(head) or may_live(channel))
    if not lives then leave(queue, waiters, head) end
    if not lives or not counts(place) then count = count - 1 end
  end
  return count >= most and count or nil
end

-- Makes the first living waiter the owner and tells it. Returns its token; `me`, without making it
-- the owner, when that comes first; false when nobody waits; nil when there are more dead waiters
-- than one call removes.
local function grant(lock, queue, waiters, claim, me)
  local now, out, value = nil, {}, nil
  local head, is_last
  for at = 0, MOST - 1 do
    -- Whether one is behind it, the value says.
    local two = try('ZRANGE', queue, at, at + 1) or {}
    head, is_last = two[1], two[2] == nil
    if not head or head == me then break end
    local place = try('HGET', waiters, head)
    if place == nil then return false end
    out[#out + 1] = head
    now = now or millis()
    -- Who waits for another kind of lock finds out by itself that the kinds don't mix.
    local finish, channel = string.match(place or '', '^(%d+) (.*)$')
    if finish and tonumber(finish) > now and #head <= MOST_TOKEN then
      local marked = is_last and head or head .. '+'
      if tell(channel, 'g ' .. marked) or is_own(head) then
        value = marked
        break
      end
    end
    if is_last then break end
  end
  -- One that comes first, as the last of all, is about to leave the queue as well.
  if #out > 0 and is_last then
    redis.call('DEL', queue, waiters)
  elseif #out > 0 then
    redis.call('ZREM', queue, unpack(out))
    redis.call('HDEL', waiters, unpack(out))
  end
  if value then
    redis.call('SET', lock, value, 'PX', claim)
    return head
  end
  if head and head == me then return me end
  if is_last then return false end
  return nil
end

-- Gives the lock to its first waiter, or frees it.
local function give_back(lock, queue, waiters, claim)
  if not grant(lock, queue, waiters, claim) then redis.call('DEL', lock) end
end

-- Puts a mark in the place of a token. Those who wait look when it says that something was done. At
-- maxmemory only a script that has deleted something may write.
local function keep_by(mark, lock, queue, waiters, time)
  redis.call('DEL', lock)
  redis.call('SET', lock, mark, 'PX', time)
  if string.sub(mark, 1, 5) ~= 'rl1=d' then return end
  for _, token in ipairs(try('ZRANGE', queue, 0, MOST - 1) or {}) do
    if #token <= MOST_TOKEN then wake(try('HGET', waiters, token) or '', token) end
  end
end

-- The value that stands for a token: it is marked when somebody waits.
local function value_of(queue, waiters, token)
  return waiting(queue, waiters) > 0 and token .. '+' or token
end

-- Whether a holder may keep its lease while nobody is inside: the last part of its token says so.
local function may_be_idle(holder)
  return is_ours(holder) and string.match(holder, '^rl1%.%x+%.[^.]+%.0') ~= nil
end

-- Marks the holder's value, so that its release finds out that somebody waits, and sends it a message, so
-- that it need not find out. `channel` is that of whoever waits: without one the holder gets no message. One
-- that may keep an idle lease learns of it in no other way, and a message may be lost, so it gets one at every
-- look of a waiter.
local function ask_to_hand_over(lock, channel)
  local holder = redis.call('GET', lock)
  if not holder or not is_ours(holder) then return end
  local marked = string.sub(holder, -1) == '+'
  if marked and not may_be_idle(holder) then return end
  if not marked then
    -- Servers before Redis 6.0 know no KEEPTTL.
    local left = redis.call('PTTL', lock)
    if left < 0 then redis.pcall('SET', lock, holder .. '+')
    else redis.pcall('SET', lock, holder .. '+', 'PX', decimal(math.max(left, 1))) end
  end
  local base = string.match(channel, '^(.*~m:)')
  local manager = manager_of(holder)
  if base and manager then publish(base .. manager, 'w ' .. lock) end
end

-- Asks a holder that may be idle, for a token that does not wait: it stands in the queue for a moment,
-- and leaves no mark, which would outlast it. Returns whether it asked, and what `enqueue` does.
local function ask_if_idle(lock, queue, waiters, token, place, channel)
  local holder = redis.call('GET', lock)
  local base = string.match(channel, '^(.*~m:)')
  if not base or not holder or not may_be_idle(holder) then return false, 0 end
  local queued = enqueue(queue, waiters, token, place, channel)
  publish(base .. manager_of(holder), 'a ' .. #token .. ' ' .. token .. ' ' .. lock)
  return true, queued
end

-- Whether a token is that of a call that ends older ones: some of its digits are capitals.
local function is_newest(token)
  return is_ours(token) and string.match(token, '^rl1%.%x*[A-F]%x*%.') ~= nil
end

-- The token of the newest call. What is no such token was written by another program.
local function last_of(latest)
  local last = (try('ZRANGE', latest, -1, -1) or {})[1]
  return last and is_newest(last) and last or nil
end

-- Adds a token to the last calls, as the newest of them. A full server refuses, and the answer is false.
local function add_newest(latest, waiters, token)
  if not write(latest, waiters, token, true, 'ZADD', latest, ticket(latest), token) then return false end
  local old = redis.call('ZRANGE', latest, 0, -MOST - 1)
  if #old > 0 then redis.call('ZREM', latest, unpack(old)) end
  return true
end

-- Notes that a call has come, which takes the place of the newest before it, if that waits. A full server
-- notes nothing, and no call is ended.
local function come_last(latest, queue, waiters, token, place, before)
  if try('ZCARD', latest) == nil then return end
  if not add_newest(latest, waiters, token) then return end
  redis.call('PEXPIRE', latest, decimal(place + 1000))
  local at = before and try('ZSCORE', queue, before)
  local its_place = at and try('HGET', waiters, before)
  if not its_place then return end
  write(queue, waiters, token, true, 'ZADD', queue, at, token)
  leave(queue, waiters, before)
  wake(its_place, before)
end

-- Has a holder look whether a newer call has come, if it is one that such calls end.
local function ask_to_leave(holder, channel)
  local base = string.match(channel, '^(.*~m:)')
  if not base or not holder or not is_newest(holder) then return end
  holder = string.gsub(holder, '%+$', '')
  publish(base .. manager_of(holder), 'g ' .. holder .. '+')
end

-- A value that never goes away by itself, and is not meant to stand so.
local function is_orphan(holder, left)
  return left == -1 and not (is_ours(holder) and string.sub(holder, 1, 5) == 'rl1.n')
end

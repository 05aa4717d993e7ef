-- Locks that several can hold at once: a sorted set at the main key, of "<mode>:<token>" by the end
-- of each lease in ms of the server's clock. The key itself ends with the last of them. A waiter's
-- entry has "/<mode><limit>" after its end. The limits that holders of permits asked for are a sorted
-- set of tokens beside it; where another program's value stands there, each goes by its own limit.
-- What the end of a permit is short of a whole millisecond is its slot: (slot + 1) / 1024. Older scripts
-- round that away. A limit that begins with a zero, such as 04, asks for a slot.

local function family(mode) return mode == PERMIT and PERMIT or READ .. WRITE end

-- What stands in the way although nobody of this family holds the lock: an answer that names it.
local function stranger(lock, mode)
  local kind = kind_at(lock)
  if kind == 'none' or #kind == 1 and family(kind) == family(mode) then return nil end
  if kind == 'string' and is_of_us(redis.call('GET', lock)) then return {-4, 'mutex'} end
  return {-4, kind}
end

-- At maxmemory a script may write what needs memory only after another write. Who has the lock
-- must be able to keep it and to give it away, so such scripts begin with this.
local function go_on_at_maxmemory(lock) redis.call('ZREM', lock, '') end

-- Lets the key, and the limits beside it, end with the last holder.
local function settle(lock, limits)
  local last = redis.call('ZRANGE', lock, -1, -1, 'WITHSCORES')
  if not last[2] then return end
  -- All are over; there may be so many of them that to free them takes a while.
  if tonumber(last[2]) <= millis() and redis.pcall('UNLINK', lock) == 1 then return end
  -- Another program may have written any number, and no key can end later.
  local finish = decimal(math.min(end_and_slot(last[2]), 9007199254740992))
  redis.call('PEXPIREAT', lock, finish)
  if string.sub(last[1], 1, 1) == PERMIT and try('ZCARD', limits) then
    redis.call('PEXPIREAT', limits, finish)
  end
end

local function score_of(finish, slot)
  return slot and string.format('%.17g', finish - (slot + 1) / 1024) or decimal(finish)
end

local function wants_slot(limit) return string.find(limit, '^0%d') ~= nil end

-- The lowest slot that no holder has. Few hundred holders are let in beside one with a slot.
local function free_slot(lock)
  local taken, all, slot = {}, redis.call('ZRANGE', lock, 0, -1, 'WITHSCORES'), 0
  for i = 2, #all, 2 do
    local _, its = end_and_slot(all[i])
    if its then taken[its] = true end
  end
  while taken[slot] do slot = slot + 1 end
  return slot
end

local function put(lock, limits, mode, token, limit, finish, slot)
  redis.call('ZADD', lock, score_of(finish, slot), mode .. ':' .. token)
  if mode == PERMIT then try('ZADD', limits, decimal(limit), token) end
end

local function drop(lock, limits, mode, token)
  redis.call('ZREM', lock, mode .. ':' .. token)
  if mode == PERMIT then try('ZREM', limits, token) end
end

-- Removes those whose lease has ended, and limits that nobody has any more. Writes nothing when there
-- is nothing of that.
local function purge(lock, limits, mode, now)
  local over = redis.call('ZRANGEBYSCORE', lock, '-inf', decimal(now), 'LIMIT', 0, MOST)
  if #over > 0 then
    redis.call('ZREM', lock, unpack(over))
    for i, member in ipairs(over) do over[i] = string.sub(member, 3) end
    if mode == PERMIT then try('ZREM', limits, unpack(over)) end
  end
  if mode == PERMIT and redis.call('ZCARD', lock) == 0 and (try('ZCARD', limits) or 0) > 0 then
    redis.call('DEL', limits)
  end
end

-- The mode that a token holds the lock in, the end, and the slot; a writer may have become a reader.
local function hold_of(lock, mode, token)
  for _, held in ipairs(mode == WRITE and {WRITE, READ} or {mode}) do
    local finish = redis.call('ZSCORE', lock, held .. ':' .. token)
    if finish then return held, end_and_slot(finish) end
  end
end

-- Whether one more fits beside those who hold now.
local function fits(lock, limits, mode, limit)
  if mode == PERMIT then
    local least = (try('ZRANGE', limits, 0, 0, 'WITHSCORES') or {})[2]
    return redis.call('ZCARD', lock) < math.min(limit, tonumber(least or limit))
  end
  local holder = redis.call('ZRANGE', lock, 0, 0)[1]
  return not holder or mode == READ and string.sub(holder, 1, 1) == READ
end

-- Lets waiters in, from the first on, while they fit. Returns whether nobody is left before `me`; nil
-- when there are more than one call deals with. Whoever was let in asks again, and then the next are.
local function admit(lock, queue, waiters, limits, mode, now, claim, me)
  if waiting(queue, waiters) == 0 then return true end
  local budget = MOST
  while budget > 0 do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head or head == me then return true end
    local place = redis.call('HGET', waiters, head) or ''
    local finish, theirs, limit, channel = string.match(place, '^(%d+)/(%a)(%d+) (.*)$')
    local lives = finish and tonumber(finish) > now and family(theirs) == family(mode)
    if lives and #head > MOST_TOKEN then lives = false end
    if lives and not fits(lock, limits, theirs, tonumber(limit)) then
      if is_own(head) or may_live(channel) then return false end
      lives = false
    end
    redis.call('ZREM', queue, head)
    redis.call('HDEL', waiters, head)
    budget = budget - 1
    -- A waiter that hears nothing looks by itself; one that nobody hears is dead.
    if lives and (tell(channel, 'g ' .. head) or is_own(head)) then
      put(lock, limits, theirs, head, limit, now + claim, wants_slot(limit) and free_slot(lock))
      budget = budget - 2
    end
  end
  return nil
end

-- Somebody else's limit that differs from `limit`, or 0.
local function other_limit(limits, limit)
  local least = (try('ZRANGE', limits, 0, 0, 'WITHSCORES') or {})[2]
  if least and tonumber(least) < limit then return tonumber(least) end
  local most = (try('ZRANGE', limits, -1, -1, 'WITHSCORES') or {})[2]
  if most and tonumber(most) > limit then return tonumber(most) end
  return 0
end

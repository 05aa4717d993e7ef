-- What every script with a queue uses. A script has its keys and arguments under the names that its
-- first lines give them.

-- So many entries of a queue or of a set are looked at in one call; the rest is done by the next ones.
local MOST = 32

-- A token has no more bytes. What is longer was written by another program.
local MOST_TOKEN = 400

-- A number as text. As a number Redis 7.2.0 to 7.2.4 would read 300000000 as "3e+08".
local function decimal(number) return string.format('%.0f', number) end

-- The answer of a command; nil where a value of another type stands at its key. Whatever else is
-- wrong (no right, not the primary, too few replicas) ends the script with the server's own error.
local function try(...)
  local answer = redis.pcall(...)
  if type(answer) ~= 'table' or not answer.err then return answer end
  if not string.find(answer.err, 'WRONGTYPE', 1, true) then return redis.call(...) end
  return nil
end

-- The end of a lease in the set of a lock that several can hold, and the slot of its holder if it has one.
local function end_and_slot(score)
  score = tonumber(score)
  local finish = math.ceil(score)
  local slot = math.floor((finish - score) * 1024) - 1
  return finish, slot >= 0 and slot or nil
end

local function millis()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Whether a value is a token of ours, with or without the mark.
local function is_ours(value)
  local digits = #value <= MOST_TOKEN and string.match(value, '^rl1%.n?(%x+)%.[^.]+%.%x+%.[^+]*%+?$')
  return digits and #digits == 32 or false
end

-- Whether a value is a token of ours, or a mark that took the place of one.
local function is_of_us(value)
  return is_ours(string.match(value, '^rl1=[dk]%.%x+%.(.*)$') or value)
end

local function has(holder, token) return holder == token or holder == token .. '+' end

-- A value as it is shown: what others wrote may be of any size.
local function shown(value)
  if value == nil then return '(a value of another type)' end
  if not value or is_of_us(value) then return value end
  return string.sub(value, 1, 200)
end

-- Why a token does not have the lock. Whoever ended the hold by force may have given the lock to the
-- next already, so a reason counts more than what stands there.
local function gone(holder, tombstone)
  local reason = string.sub(try('GET', tombstone) or '', 1, 1024)
  if reason ~= '' or holder == false then return {0, reason} end
  return {-1, shown(holder)}
end

local function is_oom(problem)
  return string.find(problem, '^%-?OOM ') ~= nil or string.find(problem, ' %-OOM ') ~= nil
end

-- Refuses an acquisition of a token that arrives later. At maxmemory that may fail: whoever asked
-- for it releases the token again.
local function leave_tombstone(tombstone, time)
  if time == '0' then return end
  local done = redis.pcall('SET', tombstone, '', 'PX', time)
  if done.err and not is_oom(done.err) then redis.call('SET', tombstone, '', 'PX', time) end
end

-- Lets a key last for so long, unless it lasts longer: somebody may believe in that.
local function lengthen(lock, ttl)
  local left = redis.call('PTTL', lock)
  if left >= 0 and left < tonumber(ttl) then redis.call('PEXPIRE', lock, ttl) end
end

-- The kind of value at a key: the mode of a lock that several can hold, or a type, or "none".
local function kind_at(lock)
  local first = try('ZRANGE', lock, 0, 0)
  if not first then
    -- A user who may not ask for the type can read the value.
    if try('GET', lock) then return 'string' end
    return redis.pcall('TYPE', lock).ok or 'value of another type'
  end
  if not first[1] then return 'none' end
  local mode, token = string.match(first[1], '^([' .. MODES .. ']):(.*)$')
  return mode and is_ours(token) and mode or 'zset'
end

-- A fencing counter: "<last number> <token it was given to>".

-- From here on a double skips numbers, and two holders would be given the same one.
local LARGEST = 9007199254740992

local function micros()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Reads a counter that `count` numbers are to be taken from. Its second result is the answer that refuses
-- that. Every script reads its counters before it writes anything, so that no lock is left behind.
local function counter(fence, count)
  local text = redis.call('GET', fence)
  local digits, owner = string.match(text or '0 ', '^(%d+) (.*)$')
  local last = digits and #digits <= 16 and tonumber(digits)
  if last and math.max(last, micros()) + count <= LARGEST then return {last = last, owner = owner} end
  return nil, redis.error_reply('WRONGTYPE The fencing counter is no number that can be counted on from')
end

-- Keeps a number for a day after the clock has reached it. Until then a new counter would begin below
-- it, should the clock have been ahead once.
local function remember(fence, number, token)
  local ahead = math.max(0, math.ceil((number - micros()) / 1000))
  local text = string.format('%.0f', number)
  redis.call('SET', fence, text .. ' ' .. token, 'PX', string.format('%.0f', 86400000 + ahead))
end

-- Reserves numbers above all that were given by these counters; returns the last of them as text. A
-- number is never below the server's clock in microseconds, so that it goes on rising after a counter
-- was lost. The same token gets the same number again.
local function number(fences, counters, token, count)
  local most, known = 0, true
  for _, counter in ipairs(counters) do
    most, known = math.max(most, counter.last), known and counter.owner == token
  end
  if known then return string.format('%.0f', most) end
  -- One number for all counters, also where the clock goes on while a script runs.
  local last = math.max(most + 1, micros()) + (count - 1)
  for _, fence in ipairs(fences) do
    remember(fence, last, token)
  end
  return string.format('%.0f', last)
end

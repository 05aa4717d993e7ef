-- A fencing counter: "<last number> <token it was given to>".

local function parse(text)
  local last, owner = string.match(text or '', '^(%d+) (.*)$')
  return tonumber(last), owner
end

local function micros()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Keeps a number for a day after the clock has reached it. Until then a new counter would begin below
-- it, should the clock have been ahead once.
local function remember(fence, number, token)
  local ahead = math.max(0, math.ceil((number - micros()) / 1000))
  local text = string.format('%.0f', number)
  redis.call('SET', fence, text .. ' ' .. token, 'PX', string.format('%.0f', 86400000 + ahead))
  return text
end

-- Reserves fencing numbers; returns the last of them as text. `text` is what the counter holds. A
-- number is never below the server's clock in microseconds, so that it goes on rising after the
-- counter was lost. The same token gets the same number again unless `anew`.
local function number(fence, text, token, count, anew)
  local last, owner = parse(text)
  if owner == token and not anew then return string.format('%.0f', last) end
  local first = micros()
  if last and last >= first then first = last + 1 end
  return remember(fence, first + count - 1, token)
end

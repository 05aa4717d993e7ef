-- Reserves fencing numbers; returns the last of them as text. A number is never below the server's
-- clock in microseconds, so that it goes on rising after the counter was lost. The same token gets
-- the same number again unless `anew`.
local function number(fence, token, count, anew)
  local text = redis.call('GET', fence)
  local last, owner
  if text then last, owner = string.match(text, '^(%d+) (.*)$') end
  if owner == token and not anew then return last end
  local time = redis.call('TIME')
  local first = time[1] * 1000000 + time[2]
  if last and tonumber(last) >= first then first = tonumber(last) + 1 end
  local reserved = string.format('%.0f', first + count - 1)
  redis.call('SET', fence, reserved .. ' ' .. token, 'PX', 86400000)
  return reserved
end

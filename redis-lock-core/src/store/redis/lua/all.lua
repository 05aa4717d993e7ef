-- Several mutexes that one token takes together. Each stands at its own key as any mutex does. While
-- it waits the token is in one queue only, that of the first key that somebody else has, and it has
-- no key; after some rounds in vain (`ordered`) it keeps the keys before that one. All who keep keys
-- while they wait do so in the same order, so nobody waits in a circle.

local function value_of(queue, token, mark)
  if mark == '1' and redis.call('EXISTS', queue) == 1 then return token .. '+' end
  return token
end

-- Gives one key to its first waiter, or frees it.
local function give_back(lock, queue, waiters, claim, mark)
  if redis.call('EXISTS', queue) == 0 or not grant(lock, queue, waiters, claim, mark) then
    redis.call('DEL', lock)
  end
end

-- As `number`, but one that is above the last of every key.
local function number_of_all(fences, token, count)
  local time = redis.call('TIME')
  local first = time[1] * 1000000 + time[2]
  local known = true
  local last
  for _, fence in ipairs(fences) do
    local owner
    last, owner = string.match(redis.call('GET', fence) or '', '^(%d+) (.*)$')
    if last and tonumber(last) >= first then first = tonumber(last) + 1 end
    known = known and owner == token
  end
  if known then return last end
  local reserved = string.format('%.0f', first + count - 1)
  for _, fence in ipairs(fences) do
    redis.call('SET', fence, reserved .. ' ' .. token, 'PX', 86400000)
  end
  return reserved
end

-- KEYS: lock queue waiters limits tomb...
-- ARGV: reason claim mark foreign token channel token channel ...
-- Answers: {1} ended; {0} had ended before
-- Ends the hold of each token. Foreign values, which have no token, end when `foreign` is 1.
local lock, queue, waiters, limits = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local reason, claim, mark = ARGV[1], ARGV[2], ARGV[3]
local day = 86400000

local function pass_on()
  if redis.call('EXISTS', queue) == 1 then grant(lock, queue, waiters, claim, mark) end
end

local holder = redis.pcall('GET', lock)
if type(holder) ~= 'string' then holder = false end
if holder and ARGV[4] == '1' and string.sub(holder, 1, 4) ~= 'rl1.' then
  redis.call('DEL', lock)
  pass_on()
  return {1}
end
-- Takes a token out of the holders of a lock that several can hold; returns its mode and what was
-- left of its lease.
local function take_out(token)
  if kind_at(lock) == 'none' or #kind_at(lock) > 1 then return nil end
  for _, mode in ipairs({'r', 'w', 'p'}) do
    local finish = redis.call('ZSCORE', lock, mode .. ':' .. token)
    if finish then
      drop(lock, limits, mode, token)
      return mode, tonumber(finish) - millis()
    end
  end
end

local ended, shared = 0, nil
for i = 5, #ARGV, 2 do
  local token, tomb = ARGV[i], KEYS[5 + (i - 5) / 2]
  if holder == token or holder == token .. '+' then
    local left = redis.call('PTTL', lock)
    -- At maxmemory only a script that has deleted something may write.
    redis.call('DEL', lock)
    redis.call('SET', tomb, reason, 'PX', left > 0 and left + 1000 or day)
    redis.pcall('PUBLISH', ARGV[i + 1], 'r ' .. token)
    pass_on()
    ended = 1
  else
    local mode, left = take_out(token)
    if mode then
      redis.call('SET', tomb, reason, 'PX', math.max(left, 0) + 1000)
      redis.pcall('PUBLISH', ARGV[i + 1], 'r ' .. token)
      ended, shared = 1, mode
    elseif redis.call('GET', tomb) == reason then
      -- An earlier try did it, whose answer was lost.
      ended = 1
    end
  end
end
if shared then
  admit(lock, queue, waiters, limits, shared, millis(), tonumber(claim))
  settle(lock, limits)
end
return {ended}

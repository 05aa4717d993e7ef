-- KEYS: lock queue waiters limits value
-- EACH KEYS: tombstone
-- ARGV: reason claim foreign
-- EACH ARGV: token channel
-- Answers: {1} ended; {0} had ended before
-- Ends the hold of each token, of which there are some tens at most; or, where `foreign` is not
-- empty, the value that look.lua gave this digest.

local holder = try('GET', lock)
if foreign ~= '' then
  if not holder or digest(holder) ~= foreign then return {0} end
  redis.call('DEL', lock)
  if redis.pcall('GETRANGE', value, 0, 3) == 'rl1.' then redis.call('DEL', value) end
  grant(lock, queue, waiters, claim)
  return {1}
end

-- Takes a token out of the holders of a lock that several can hold; returns its mode and what was
-- left of its lease.
local shared = holder == nil and kind_at(lock) or ''
local now = millis()
local function take_out(token)
  if #shared ~= 1 then return nil end
  for mode in string.gmatch(MODES, '.') do
    local finish = redis.call('ZSCORE', lock, mode .. ':' .. token)
    if finish and tonumber(finish) > now then
      drop(lock, limits, mode, token)
      return mode, tonumber(finish) - now
    end
  end
end

local ended, mode, left = 0, nil, nil
for i = 1, count do
  local tombstone, token, channel = each(i)
  if holder and has(holder, token) then
    left = redis.call('PTTL', lock)
    -- At maxmemory only a script that has deleted something may write.
    redis.call('DEL', lock)
    redis.call('SET', tombstone, reason, 'PX', decimal(left > 0 and left + 1000 or 86400000))
    publish(channel, 'r ' .. token)
    grant(lock, queue, waiters, claim)
    ended, holder = 1, false
  else
    local held
    held, left = take_out(token)
    if held then
      redis.call('SET', tombstone, reason, 'PX', decimal(math.max(left, 0) + 1000))
      publish(channel, 'r ' .. token)
      ended, mode = 1, held
    elseif try('GET', tombstone) == reason then
      -- An earlier try did it, whose answer was lost.
      ended = 1
    end
  end
end
if mode then
  purge(lock, limits, mode, now)
  admit(lock, queue, waiters, limits, mode, now, tonumber(claim))
  settle(lock, limits)
end
return {ended}

-- Several mutexes that one token takes together. Each stands at its own key as any mutex does. While
-- it waits the token is in one queue only, that of the first key that somebody else has, and it has
-- no key; after some rounds in vain (`ordered`) it keeps the keys before that one. All who keep keys
-- while they wait do so in the same order, so nobody waits in a circle.

-- As `number`, but one that is above the last of every key. `texts` is what the counters hold.
local function number_of_all(fences, texts, token, count)
  local first, known, last = micros(), true, nil
  for i = 1, #fences do
    local owner
    last, owner = parse(texts[i])
    if last and last >= first then first = last + 1 end
    known = known and owner == token
  end
  if known then return string.format('%.0f', last) end
  local reserved
  for _, fence in ipairs(fences) do reserved = remember(fence, first + count - 1, token) end
  return reserved
end

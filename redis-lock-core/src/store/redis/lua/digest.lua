-- Names the value of another program: what may be ended by force is the one that was looked at.
local function digest(value) return redis.sha1hex(string.sub(value, 1, 4096) .. ' ' .. #value) end

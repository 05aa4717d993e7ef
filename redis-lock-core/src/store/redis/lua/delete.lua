-- KEYS: lock
-- ARGV: token
-- What servers without a compare-and-delete of their own are given: 1 deleted; 0 only the release
-- script can tell more. A marked value is not equal, so whoever waits is not passed over.
if redis.call('GET', lock) == token then return redis.call('DEL', lock) end
return 0

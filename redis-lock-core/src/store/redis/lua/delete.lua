-- KEYS: lock  ARGV: token
-- What servers without a compare-and-delete of their own are given: 1 deleted; 0 only the release
-- script can tell more. A marked value is not equal, so whoever waits is not passed over.
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0

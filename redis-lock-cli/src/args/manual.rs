//! The longer texts of the help.

pub(crate) const MANUAL: &str = "\
EXAMPLES
  One of many machines runs the job. The others skip it, for at least ten minutes:
      redis-lock run nightly -n --min-hold 10m -- /usr/local/bin/nightly
  The same from cron, which mails all output. The machines that skip print nothing:
      redis-lock run nightly -n -q -E 0 --min-hold 10m -- /usr/local/bin/nightly
  One machine runs the job of each date. If it fails, another one tries:
      redis-lock run \"nightly:$(date -u +%F)\" --once 24h --max-hold 2h -- /usr/local/bin/nightly
  At most three downloads at a time, on all machines together:
      redis-lock run download --permits 3 -- curl -O https://example.com/large
  All locks, or those of orders:
      redis-lock ls
      redis-lock ls 'order:*'
  Is the nightly job running, and for how long?
      redis-lock show nightly
  Watch the queue for a lock:
      redis-lock watch 'order:42'
  A holder hangs. End its hold, and say why:
      redis-lock release order:42 --reason 'hangs since 14:00, INC-311'
  A shell script takes a lock, and another script ends the hold:
      token=$(redis-lock acquire deploy --ttl 10m --wait none) || exit
      redis-lock release deploy --token \"$token\"
  The key that #[redis_lock(key = \"user:{name}\")] makes of a name:
      redis-lock show user --segment 'J. Doe'
  Is the server fit for locks?
      redis-lock check
  All locks with waiters, by jq:
      redis-lock ls --json | jq -r 'select(.waiters | length > 0) | .key'

EXIT STATUS
  0    success; of `show`: the lock is held; of `check`: the server can be used
  1    `show`: not held; `release`: not held, not by this token, or you answered no;
       `check --strict`: there are warnings
  64   usage error: the command line can't be read, or options exclude each other
  65   another program wrote a value without a ttl to the key; `release` can delete it
  69   the server is unreachable, or refuses
  74   reading or writing failed
  75   `run` and `acquire`: another holder has the lock and the wait is over, or --queue is full
       (-E sets another code)
  76   `run`: the lock was lost, and the command was stopped
  78   no server was named, or a value is out of range
  79   `run --newest`: a newer call ended this one
  126  `run`: the command can't be executed
  127  `run`: the command was not found
  128+n  `run`: signal n ended the command; `run` and `acquire`: signal n ended the wait
  Otherwise `run` exits as its command did.

ENVIRONMENT
  REDIS_URL              the server, unless --url is given. Put a URL with a password here: other
                         users of the machine can read command lines. Empty means unset
  REDIS_LOCKS_NAMESPACE  the prefix of every key, unless --namespace is given
  NO_COLOR               print without colours";

pub(crate) const STATUS_FIELDS: &str = "\
JSON
  key      the key, without the namespace
  kind     free, mutex, read, write, permit, or foreign: the lock of another client, or a value
           that is not a lock and has no holder
  limit    of permits: how many holders there can be at once; else null
  held     whether there is a holder
  holders  token, label, since (UTC, in milliseconds, by the holder's clock), ttl_ms (null: the
           lock never expires), fence (null: the holder asked for none), idle (true: the process
           only keeps the lease for its next call; null: known only to its process), idle_since,
           second_call (\"queue = 1\", \"newest\", \"share\", or null)
  done     the success that `run --once` has recorded: by, at, until, value_bytes (the size of a
           stored value; null: none, and always in `ls`); else null
  kept_until  until when --min-hold keeps the lock after its release; else null
  waiters  label, since, second_call; the first one is next
  server   version, release (compare-and-delete, script or transaction), scripts (whether they are
           used; without them there are only mutexes), topology (single, sentinel, cluster or
           quorum), epoch, and nodes, unless single: address, role, version, trouble (why the node
           can't be used), votes (of a quorum)
  Later versions may add fields. These stay.";

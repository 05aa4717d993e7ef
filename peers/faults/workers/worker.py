"""The worker of the Python libraries; `src/worker/mod.rs` says what it does."""

import sys
import time

import redis


class RedisPy:
    """redis-py's own lock. It does not renew."""

    def __init__(self, terms):
        timeout = terms.command_timeout
        self.client = redis.Redis.from_url(
            terms.urls[0], socket_timeout=timeout, socket_connect_timeout=timeout
        )

    def acquire(self, terms):
        lock = self.client.lock(terms.key, timeout=terms.ttl, blocking_timeout=terms.wait)
        return lock if lock.acquire() else None

    def is_held(self, lock):
        return lock.owned()

    def release(self, lock):
        try:
            lock.release()
            return "ok"
        except redis.exceptions.LockError:
            return "lost"


class PythonRedisLock:
    """python-redis-lock, with renewal. A lock is waited for by BLPOP, which the socket's limit must
    outlast."""

    def __init__(self, terms):
        import redis_lock

        self.library = redis_lock
        self.client = redis.StrictRedis.from_url(
            terms.urls[0],
            socket_timeout=terms.wait + 1,
            socket_connect_timeout=terms.command_timeout,
        )

    def acquire(self, terms):
        lock = self.library.Lock(
            self.client, terms.key, expire=int(terms.ttl), auto_renewal=True
        )
        return lock if lock.acquire(timeout=int(terms.wait)) else None

    def is_held(self, lock):
        return lock.get_owner_id() == lock.id

    def release(self, lock):
        try:
            lock.release()
            return "ok"
        except self.library.NotAcquired:
            return "lost"


class Terms:
    def __init__(self, arguments):
        self.library, urls, self.key, ttl, body, wait, command_timeout = arguments
        self.urls = urls.split(",")
        self.ttl, self.body, self.wait, self.command_timeout = (
            int(text) / 1000 for text in (ttl, body, wait, command_timeout)
        )


def say(line):
    print(line, flush=True)


def ask(line):
    say(line)
    return sys.stdin.readline().split()


def now():
    return time.monotonic_ns()


def hold(library, lock, terms):
    say(f"got {now()} -")
    plain = int(ask("read -")[0]) + 1
    time.sleep(terms.body * 2 / 3)
    try:
        is_held = library.is_held(lock)
    except redis.exceptions.RedisError:
        is_held = False
    if is_held:
        time.sleep(terms.body / 3)
        ask(f"write - {plain} -")
    else:
        say(f"skip {now()}")
    say(f"end {now()}")
    try:
        ended = library.release(lock)
    except redis.exceptions.RedisError:
        ended = "unknown"
    say(f"ended {now()} {ended}")


def main():
    terms = Terms(sys.argv[1:])
    libraries = {"redis-py": RedisPy, "python-redis-lock": PythonRedisLock}
    library = libraries[terms.library](terms)
    until = int(ask("ready")[0])
    while now() < until:
        say(f"call {now()}")
        try:
            lock = library.acquire(terms)
        except redis.exceptions.RedisError as error:
            say(f"failed {now()} {type(error).__name__} {error}".replace("\n", " "))
            time.sleep(0.02)
            continue
        if lock:
            hold(library, lock, terms)
        else:
            say(f"busy {now()}")


main()

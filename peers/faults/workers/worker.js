// The worker of the JavaScript libraries; `src/worker/mod.rs` says what it does.
"use strict";

const readline = require("node:readline");
const Redis = require("ioredis");

const [library, urls, key, ttl, body, wait, commandTimeout] = process.argv.slice(2);
const terms = {
  urls: urls.split(","),
  ttl: Number(ttl),
  body: Number(body),
  wait: Number(wait),
};

function connect(url) {
  const client = new Redis(url, { commandTimeout: Number(commandTimeout) });
  // Without a listener the driver prints each lost connection.
  client.on("error", () => {});
  return client;
}

// redlock does not renew; a lock tells until when it is valid.
class Redlock {
  constructor() {
    const Library = require("redlock");
    const retryDelay = 200;
    this.LockError = Library.LockError;
    this.redlock = new Library(terms.urls.map(connect), {
      retryDelay,
      retryJitter: 200,
      retryCount: Math.ceil(terms.wait / retryDelay),
    });
    this.redlock.on("clientError", () => {});
  }

  async acquire() {
    try {
      return await this.redlock.lock(key, terms.ttl);
    } catch (error) {
      if (error instanceof this.LockError) return null;
      throw error;
    }
  }

  isHeld(lock) {
    return Date.now() < lock.expiration;
  }

  async release(lock) {
    const wasHeld = this.isHeld(lock);
    try {
      await lock.unlock();
      return wasHeld ? "ok" : "lost";
    } catch {
      return wasHeld ? "unknown" : "lost";
    }
  }
}

// redis-semaphore renews, and calls back when it finds that a lock is lost.
class RedisSemaphore {
  constructor() {
    this.library = require("redis-semaphore");
    this.clients = terms.urls.map(connect);
  }

  async acquire() {
    const options = {
      lockTimeout: terms.ttl,
      acquireTimeout: terms.wait,
      onLockLost: () => {},
    };
    const mutex = new this.library.RedlockMutex(this.clients, key, options);
    return (await mutex.tryAcquire()) ? mutex : null;
  }

  isHeld(mutex) {
    return mutex.isAcquired;
  }

  async release(mutex) {
    const wasHeld = this.isHeld(mutex);
    try {
      await mutex.release();
      return wasHeld ? "ok" : "lost";
    } catch {
      return "unknown";
    }
  }
}

const answers = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

function say(line) {
  process.stdout.write(line + "\n");
}

async function ask(line) {
  say(line);
  return (await answers.next()).value.split(" ");
}

const now = () => process.hrtime.bigint();
const sleep = (millis) => new Promise((done) => setTimeout(done, millis));

async function hold(library, lock) {
  say(`got ${now()} -`);
  const plain = BigInt((await ask("read -"))[0]) + 1n;
  await sleep((terms.body * 2) / 3);
  if (library.isHeld(lock)) {
    await sleep(terms.body / 3);
    await ask(`write - ${plain} -`);
  } else {
    say(`skip ${now()}`);
  }
  say(`end ${now()}`);
  const ended = await library.release(lock);
  say(`ended ${now()} ${ended}`);
}

async function main() {
  const libraries = { "redlock-js": Redlock, "redis-semaphore": RedisSemaphore };
  const used = new libraries[library]();
  const until = BigInt((await ask("ready"))[0]);
  while (now() < until) {
    say(`call ${now()}`);
    let lock;
    try {
      lock = await used.acquire();
    } catch (error) {
      say(`failed ${now()} ${String(error).replaceAll("\n", " ")}`);
      await sleep(20);
      continue;
    }
    if (lock) await hold(used, lock);
    else say(`busy ${now()}`);
  }
}

main().then(() => process.exit(0));

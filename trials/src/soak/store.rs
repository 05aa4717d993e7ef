use std::collections::BTreeMap;

use anyhow::{Context, Result};
use redis::Script;

use super::gift::Gift;

/// Holds that were given away.
const GIFTS: &str = "gifts";

/// The data that the locks protect: counters on a server of their own, which is not disturbed. Each
/// is read and written in two steps.
///
/// The *fenced* counter remembers the highest fencing number of its reads and writes, and refuses
/// lower ones. The *plain* one accepts every write.
pub(crate) struct Store {
    connection: redis::Connection,
    read: Script,
    write: Script,
}

impl Store {
    pub(crate) fn connect(url: &str) -> Result<Self> {
        let connection = redis::Client::open(url)?.get_connection().context("the store")?;
        // Reading counts as well: otherwise a late writer could come between the read and the
        // write of the one who holds the lock now.
        let read = Script::new(
            "if tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) > tonumber(ARGV[1]) then \
               return false end \
             redis.call('HSET', KEYS[1], 'fence', ARGV[1]) \
             return tonumber(redis.call('HGET', KEYS[1], 'value') or 0)",
        );
        let write = Script::new(
            "if tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) > tonumber(ARGV[1]) then \
               return 0 end \
             redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2]) \
             return 1",
        );
        Ok(Self { connection, read, write })
    }

    /// The fenced counter; `None` when a higher fence was here before.
    pub(crate) fn read_fenced(&mut self, key: u64, fence: u64) -> Result<Option<u64>> {
        let mut read = self.read.prepare_invoke();
        Ok(read.key(format!("fenced:{key}")).arg(fence).invoke(&mut self.connection)?)
    }

    /// Sets the fenced counter; `false` when a higher fence was here before.
    pub(crate) fn write_fenced(&mut self, key: u64, fence: u64, value: u64) -> Result<bool> {
        let mut write = self.write.prepare_invoke();
        let write = write.key(format!("fenced:{key}")).arg(fence).arg(value);
        Ok(write.invoke(&mut self.connection)?)
    }

    pub(crate) fn read_plain(&mut self, key: u64) -> Result<u64> {
        let value: Option<u64> =
            redis::cmd("GET").arg(format!("plain:{key}")).query(&mut self.connection)?;
        Ok(value.unwrap_or_default())
    }

    pub(crate) fn write_plain(&mut self, key: u64, value: u64) -> Result<()> {
        let mut set = redis::cmd("SET");
        Ok(set.arg(format!("plain:{key}")).arg(value).query(&mut self.connection)?)
    }

    /// Leaves a hold for the next worker that adopts one.
    pub(crate) fn give(&mut self, gift: &Gift) -> Result<()> {
        Ok(redis::cmd("RPUSH").arg(GIFTS).arg(gift.to_string()).query(&mut self.connection)?)
    }

    /// Takes the hold that was left first.
    pub(crate) fn take_gift(&mut self) -> Result<Option<Gift>> {
        let gift: Option<String> = redis::cmd("LPOP").arg(GIFTS).query(&mut self.connection)?;
        gift.map(|gift| Gift::parse(&gift).context("a hold that was left")).transpose()
    }

    /// How many of the updates that workers report are not in the fenced counters.
    pub(crate) fn lost_fenced(&mut self, reported: &BTreeMap<u64, u64>) -> Result<u64> {
        let mut lost = 0;
        for (key, count) in reported {
            let value: Option<u64> = redis::cmd("HGET")
                .arg(format!("fenced:{key}"))
                .arg("value")
                .query(&mut self.connection)?;
            lost += count.saturating_sub(value.unwrap_or_default());
        }
        Ok(lost)
    }

    /// The same for the plain counters.
    pub(crate) fn lost_plain(&mut self, reported: &BTreeMap<u64, u64>) -> Result<u64> {
        let mut lost = 0;
        for (key, count) in reported {
            lost += count.saturating_sub(self.read_plain(*key)?);
        }
        Ok(lost)
    }
}

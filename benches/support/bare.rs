//! A lock by the bare driver, without this library: `SET NX PX`, and a script that deletes.

use anyhow::{Result, ensure};
use redis::aio::MultiplexedConnection;
use redis::{IntoConnectionInfo, Script};

const KEY: &str = "pair:bare";
const TTL_MILLIS: u64 = 30_000;

#[derive(Clone)]
pub struct Bare {
    connection: MultiplexedConnection,
    script: Script,
    number: u64,
}

impl Bare {
    pub async fn connect(server: impl IntoConnectionInfo) -> Result<Self> {
        let connection = redis::Client::open(server)?.get_multiplexed_async_connection().await?;
        let script = Script::new(
            "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end \
             return 0",
        );
        Ok(Self { connection, script, number: 0 })
    }

    /// Takes the lock and gives it back.
    pub async fn pair(&mut self) -> Result<()> {
        self.number += 1;
        let token = format!("{:032x}", self.number);
        let mut set = redis::cmd("SET");
        set.arg(KEY).arg(&token).arg("NX").arg("PX").arg(TTL_MILLIS);
        let set: Option<String> = set.query_async(&mut self.connection).await?;
        ensure!(set.is_some(), "another client has the lock of the bare driver");
        let deleted: u32 =
            self.script.key(KEY).arg(&token).invoke_async(&mut self.connection).await?;
        ensure!(deleted == 1, "the lock of the bare driver was lost");
        Ok(())
    }
}

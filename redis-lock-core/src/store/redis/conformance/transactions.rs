//! The same commands without scripts.

use std::sync::Arc;

use testbed::Server;
use tokio::runtime::{Builder, Runtime};

use super::steps::PATIENCE;
use crate::domain::fault::Fault;
use crate::store::redis::Terms;
use crate::store::redis::dialect::Dialect;
use crate::store::redis::listen::Channel;
use crate::store::redis::test_direct::Direct;
use crate::store::redis::transaction::{Pool, Setting, run};
use crate::store::{Answer, Command, Verb};

pub(super) struct Transactions {
    runtime: Runtime,
    pool: Arc<Pool>,
}

impl Transactions {
    pub(super) fn new(server: &Server) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let pool = Pool::new(server.client(), &Terms::new("lock", "m", PATIENCE));
        Self { runtime, pool }
    }

    pub(super) fn send(
        &self,
        command: &Command,
        channel: &str,
        direct: &mut Direct,
    ) -> Result<Answer, Fault> {
        if let Verb::Take { .. } = command.verb {
            return direct.send(command, channel);
        }
        let channel = Channel::listened_at(channel);
        let setting = Setting { pool: Arc::clone(&self.pool), dialect: Dialect::Ranges, channel };
        self.runtime.block_on(run(&setting, command))
    }
}

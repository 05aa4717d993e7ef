//! How much of its core a server takes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use testbed::Server;

/// What a server had computed at some moment.
pub(crate) struct ServerLoad {
    since: Instant,
    computed: Duration,
}

impl ServerLoad {
    pub(crate) fn begin(server: &Server) -> Result<Self> {
        Ok(Self { computed: computed(server)?, since: Instant::now() })
    }

    /// The seconds that its main thread has computed since then.
    pub(crate) fn seconds(&self, server: &Server) -> Result<f64> {
        Ok(computed(server)?.saturating_sub(self.computed).as_secs_f64())
    }

    /// The part of a core that its main thread has taken since then.
    pub(crate) fn share(&self, server: &Server) -> Result<f64> {
        let elapsed = self.since.elapsed();
        let computed = computed(server)?.saturating_sub(self.computed);
        Ok(computed.as_secs_f64() / elapsed.as_secs_f64())
    }
}

fn computed(server: &Server) -> Result<Duration> {
    let part = |name| -> Result<Duration> {
        let text = server.info("cpu", name).with_context(|| format!("INFO has no {name}"))?;
        Ok(Duration::try_from_secs_f64(text.parse()?)?)
    };
    Ok(part("used_cpu_user_main_thread")? + part("used_cpu_sys_main_thread")?)
}

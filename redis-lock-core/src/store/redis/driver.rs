//! Connections that the driver keeps using.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::AbortHandle;

use super::line::ask_all;
use super::login::{CredentialSource, Login};

/// A connection that the driver keeps using. It follows the credentials as long as this or a clone of it
/// exists.
#[derive(Clone)]
pub(super) struct Driver {
    connection: MultiplexedConnection,
    /// Locked while the connection must get no `AUTH`, as in a transaction, where it would be queued.
    quiet: Arc<Mutex<()>>,
    login: Option<Arc<Following>>,
}

struct Following {
    source: Arc<CredentialSource>,
    task: AbortHandle,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Driver {
    pub(super) fn new(connection: MultiplexedConnection, login: Option<Login>) -> Self {
        let quiet = Arc::<Mutex<()>>::default();
        let login = login.map(|login| {
            let source = Arc::clone(login.source());
            let following = follow(login, connection.clone(), Arc::clone(&quiet));
            Arc::new(Following { source, task: tokio::spawn(following).abort_handle() })
        });
        Self { connection, quiet, login }
    }

    /// Sends commands. Error replies are among the answers.
    pub(super) async fn ask_all(
        &mut self,
        cmds: impl IntoIterator<Item = Cmd>,
    ) -> Result<Vec<Value>, RedisError> {
        let answers = ask_all(&mut self.connection, cmds).await?;
        if let Some(Following { source, .. }) = self.login.as_deref() {
            answers.iter().for_each(|answer| source.hear(answer));
        }
        Ok(answers)
    }

    /// Sends one command. An error reply is an answer.
    pub(super) async fn ask(&mut self, cmd: &Cmd) -> Result<Value, RedisError> {
        let answer = self.connection.send_packed_command(cmd).await?;
        if let Some(Following { source, .. }) = self.login.as_deref() {
            source.hear(&answer);
        }
        Ok(answer)
    }

    /// As long as the returned value exists, the connection gets no `AUTH`.
    pub(super) async fn quiet(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.quiet).lock_owned().await
    }
}

/// Authenticates a connection anew whenever there are other credentials, until it ends.
async fn follow(mut login: Login, mut connection: MultiplexedConnection, quiet: Arc<Mutex<()>>) {
    loop {
        let Some(auth) = login.changed().await else { continue };
        let _quiet = quiet.lock().await;
        match ask_all(&mut connection, [auth]).await {
            Ok(answers) => answers.iter().for_each(|answer| login.source().hear(answer)),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use testbed::Server;

    use super::*;
    use crate::domain::credentials::Credentials;

    /// How many times the server has executed `AUTH`.
    fn authentications(server: &Server) -> u64 {
        let stats: String = server.run("INFO commandstats");
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_auth:calls="));
        line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
    }

    #[tokio::test]
    async fn a_connection_in_a_transaction_gets_no_auth_until_that_has_ended() {
        let server = Server::start();
        let source = CredentialSource::new(Arc::new(|| {
            Box::pin(async { Ok(Credentials::new("default", "first")) })
        }));
        let login = source.login(Duration::from_secs(10)).await.unwrap();
        let client = redis::Client::open(server.url()).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut driver = Driver::new(connection, Some(login));
        let quiet = driver.quiet().await;
        let before = authentications(&server);
        source.publish(Credentials::new("default", "second"));
        for _ in 0..100 {
            driver.ask(&redis::cmd("PING")).await.unwrap();
        }
        assert_eq!(authentications(&server), before, "it is in a transaction");
        drop(quiet);
        let authenticates = async {
            while authentications(&server) == before {
                driver.ask(&redis::cmd("PING")).await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(30), authenticates).await.unwrap();
    }
}

//! A hold that goes from one manager to another by its token.

use std::future::Future;
use std::task::{Context, Poll};
use std::time::Duration;

use redis_locks::{Guard, LockError, Locks, Scripting, Token};
use testbed::{Server, WakeLog, eventually};

use crate::support::{HANGS, KEY, LONG, PATIENCE, WIRE, until};

/// A holder and an adopter at one server, by scripts or by transactions.
struct Pair {
    server: Server,
    from: Locks,
    to: Locks,
}

impl Pair {
    async fn each() -> Vec<Self> {
        let mut all = Vec::new();
        for scripting in [Scripting::Auto, Scripting::Never] {
            let server = Server::start();
            let locks = || Locks::builder().url(server.url()).scripting(scripting).connect();
            let (from, to) = (locks().await.unwrap(), locks().await.unwrap());
            all.push(Self { server, from, to });
        }
        all
    }

    async fn detached(&self, ttl: Duration) -> Token {
        self.from.mutex(KEY).ttl(ttl).acquire().await.unwrap().detach()
    }

    async fn adopt(&self, token: &Token) -> Result<Guard, LockError> {
        // As text, since that is how it travels.
        let token = token.to_string().parse().unwrap();
        self.to.mutex(KEY).ttl(LONG).adopt(token).await
    }

    async fn end(self) {
        self.from.shutdown().await;
        self.to.shutdown().await;
        eventually(PATIENCE, "no key is left", || self.server.keys().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adopter_holds_renews_and_releases_what_another_took() {
    for pair in Pair::each().await {
        let token = pair.detached(Duration::from_secs(5)).await;
        let guard = pair.adopt(&token).await.unwrap();
        assert_eq!(guard.token().to_string(), token.to_string());
        assert!(pair.server.pttl(WIRE).unwrap() > 20_000, "it has the lease of the adopter");
        assert!(pair.from.mutex(KEY).try_acquire().await.unwrap().is_none());
        guard.release().await.unwrap();
        pair.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_release_by_two_adopters_of_one_token_is_lost() {
    for pair in Pair::each().await {
        let token = pair.detached(LONG).await;
        let first = pair.adopt(&token).await.unwrap();
        let second = pair.from.mutex(KEY).adopt(token.to_string().parse().unwrap()).await.unwrap();
        first.release().await.unwrap();
        assert!(second.release().await.unwrap_err().is_lost());
        pair.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_adoption_is_lost() {
    for pair in Pair::each().await {
        let token = pair.detached(Duration::from_millis(300)).await;
        eventually(PATIENCE, "the lease ends", || !pair.server.exists(WIRE));
        assert!(pair.adopt(&token).await.unwrap_err().is_lost());
        let other = pair.from.mutex(KEY).acquire().await.unwrap();
        assert!(pair.adopt(&token).await.unwrap_err().is_lost(), "another holder has it");
        other.release().await.unwrap();
        pair.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_another_key_adopts_nothing() {
    for pair in Pair::each().await {
        let guard = pair.from.mutex("other").acquire().await.unwrap();
        let token = Token::clone(guard.token());
        assert!(pair.adopt(&token).await.unwrap_err().is_lost());
        assert!(guard.verify().await.is_ok());
        guard.release().await.unwrap();
        pair.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_an_adopter_end_with_its_lease() {
    for pair in Pair::each().await {
        let token = pair.detached(Duration::from_millis(1500)).await;
        let text = token.to_string().parse().unwrap();
        let adopts = pair.to.mutex(KEY).ttl(Duration::from_secs(1)).renew(false).adopt(text);
        // It is not renewed, as where the adopter died.
        std::mem::forget(adopts.await.unwrap());
        let waits = pair.from.mutex(KEY).wait(PATIENCE * 6).acquire().await.unwrap();
        waits.release().await.unwrap();
        pair.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_of_a_lost_lock_is_one_that_nobody_can_adopt() {
    for pair in Pair::each().await {
        let guard = pair.from.mutex(KEY).acquire().await.unwrap();
        let held = guard.token().to_string();
        pair.server.run::<i64>(&format!("DEL {WIRE}"));
        let since = std::time::Instant::now();
        while guard.verify().await.is_ok() {
            assert!(since.elapsed() < HANGS, "it does not learn of its loss");
        }
        let token = guard.detach();
        assert_ne!(token.to_string(), held);
        assert!(pair.adopt(&token).await.unwrap_err().is_lost());
        pair.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adoption_that_is_dropped_anywhere_leaves_the_lock_to_whoever_has_the_token() {
    for pair in Pair::each().await {
        // Both while its command is still on its way, and when the answer has arrived.
        for (polls, in_flight) in (0..4).flat_map(|polls| [(polls, true), (polls, false)]) {
            let token = pair.detached(LONG).await;
            let text = token.to_string().parse().unwrap();
            {
                let mut adopts = Box::pin(pair.to.mutex(KEY).adopt(text));
                let wakes = WakeLog::new();
                for poll in 1..=polls {
                    let before = wakes.count();
                    match adopts.as_mut().poll(&mut Context::from_waker(&wakes.waker())) {
                        // It was adopted: the guard gives it away again.
                        Poll::Ready(guard) => {
                            drop(guard.unwrap().detach());
                            break;
                        }
                        Poll::Pending if in_flight && poll == polls => {}
                        Poll::Pending => {
                            until("it is woken", || wakes.count() > before).await;
                        }
                    }
                }
            }
            let guard = pair.adopt(&token).await;
            guard.unwrap_or_else(|error| panic!("{polls} polls: {error}")).release().await.unwrap();
        }
        pair.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adopter_that_shuts_down_leaves_nothing_behind() {
    for pair in Pair::each().await {
        let adopted = pair.adopt(&pair.detached(LONG).await).await.unwrap();
        let lasting = pair.from.mutex("other").never_expires().acquire().await.unwrap().detach();
        let lasting = pair.to.mutex("other").adopt(lasting).await.unwrap();
        pair.to.shutdown().await;
        assert!(!adopted.is_held() && !lasting.is_held());
        assert_eq!(pair.server.keys(), Vec::<String>::new());
        pair.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_that_joined_gives_away_only_its_turn() {
    for pair in Pair::each().await {
        let outer = pair.from.mutex(KEY).run(async |outer| {
            let inner = pair.from.mutex(KEY).reentrant().acquire().await?;
            let token = inner.detach();
            assert!(pair.adopt(&token).await.unwrap_err().is_lost());
            let again = pair.from.mutex(KEY).reentrant().no_wait().acquire().await?;
            again.release().await?;
            outer.verify().await
        });
        outer.await.unwrap().unwrap();
        pair.end().await;
    }
}

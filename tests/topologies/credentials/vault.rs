//! Servers with a user whose password changes, and the provider that knows it.

use std::collections::BTreeSet;
use std::error::Error;
use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use redis_locks::Credentials;
use testbed::Server;

/// How often the password changes.
pub(super) const PERIOD: Duration = Duration::from_secs(2);

/// How long a connection may use one. The server accepts it for new connections until the next one comes.
const LIFE: Duration = Duration::from_secs(4);

/// What each password begins with; its number follows.
pub(super) const MARK: &str = "hush-";

pub(super) struct Vault {
    user: &'static str,
    servers: Vec<redis::Client>,
    issued: Mutex<Vec<(Instant, SystemTime)>>,
    /// When each provider was asked.
    asked: Mutex<Vec<Vec<Instant>>>,
    is_over: AtomicBool,
}

impl Vault {
    /// A user of these servers who may do everything.
    pub(super) fn of<'a>(
        user: &'static str,
        servers: impl IntoIterator<Item = &'a Server>,
    ) -> Arc<Self> {
        let servers = servers.into_iter().map(Server::client).collect();
        let (issued, asked) = (Mutex::default(), Mutex::default());
        let vault = Self { user, servers, issued, asked, is_over: AtomicBool::new(false) };
        vault.change();
        Arc::new(vault)
    }

    /// Changes the password: no connection can begin with the former one.
    pub(super) fn change(&self) {
        let number = self.issued() + 1;
        for server in &self.servers {
            let mut set = redis::cmd("ACL");
            set.arg("SETUSER").arg(self.user).arg("resetpass").arg(format!(">{MARK}{number:04}"));
            set.arg(["on", "~*", "&*", "+@all"].as_slice());
            set.exec(&mut server.get_connection().unwrap()).unwrap();
        }
        self.issued.lock().unwrap().push((Instant::now(), SystemTime::now()));
    }

    /// Changes it again and again until `over`.
    pub(super) fn keep_changing(self: &Arc<Self>) {
        let vault = Arc::clone(self);
        thread::spawn(move || {
            loop {
                thread::sleep(PERIOD);
                if vault.is_over.load(Ordering::Relaxed) {
                    return;
                }
                vault.change();
            }
        });
    }

    pub(super) fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn issued(&self) -> usize {
        self.issued.lock().unwrap().len()
    }

    pub(super) fn has_expired(&self, number: usize) -> bool {
        self.issued.lock().unwrap()[number - 1].0.elapsed() >= LIFE
    }

    pub(super) fn provider(
        self: &Arc<Self>,
    ) -> impl Fn() -> std::future::Ready<Answer> + Send + Sync + 'static + use<> {
        let vault = Arc::clone(self);
        let number = {
            let mut asked = vault.asked.lock().unwrap();
            asked.push(Vec::new());
            asked.len() - 1
        };
        move || {
            vault.asked.lock().unwrap()[number].push(Instant::now());
            let issued = vault.issued.lock().unwrap();
            let password = format!("{MARK}{:04}", issued.len());
            let end = issued[issued.len() - 1].1 + LIFE;
            ready(Ok(Credentials::new(vault.user, password).expires_at(end)))
        }
    }

    /// Each provider was asked again, and once a second at most. A busy machine may begin a call late. Then the
    /// pause before it looks longer, and the one after it shorter.
    pub(super) fn was_asked_with_pauses(&self) {
        for asked in &*self.asked.lock().unwrap() {
            let mut pauses: Vec<_> = asked.windows(2).map(|two| two[1] - two[0]).collect();
            pauses.sort_unstable();
            let shortest = *pauses.first().expect("it was asked again");
            let median = pauses[pauses.len() / 2];
            println!("{} questions, at least {shortest:?} apart", asked.len());
            let (first, last) = (asked[0], asked[asked.len() - 1]);
            let least = Duration::from_secs(1) * u32::try_from(asked.len() - 1).unwrap();
            assert!(
                last - first + Duration::from_millis(500) >= least,
                "{} in {:?}",
                asked.len(),
                last - first
            );
            assert!(median >= Duration::from_millis(990), "{median:?}");
            assert!(shortest >= Duration::from_millis(500), "{shortest:?}");
        }
    }
}

pub(super) type Answer = Result<Credentials, Box<dyn Error + Send + Sync>>;

/// The connections of this user.
pub(super) fn connections(server: &Server, user: &str) -> BTreeSet<u64> {
    let list: String = server.run("CLIENT LIST");
    let of_user = list.lines().filter(|line| line.contains(&format!(" user={user} ")));
    of_user.map(|line| line[3..].split(' ').next().unwrap().parse().unwrap()).collect()
}

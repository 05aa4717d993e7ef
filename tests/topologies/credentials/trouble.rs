//! Providers that fail, hang, panic or block, and what is shown of credentials.

use std::future::{Future, pending};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis_locks::{Credentials, LockError, Locks, LocksBuilder};
use testbed::{Server, eventually, holds_for, in_own_process};

use super::users_are_known;
use super::vault::Answer;
use crate::arena::{PATIENCE, log, ms, take};
use crate::is_held;

const SECRET: &str = "correct-horse";

const ANSWERS: u8 = 0;
const FAILS: u8 = 1;
const PANICS: u8 = 2;
const HANGS: u8 = 3;
const BLOCKS: u8 = 4;
const FAILS_UNSHOWN: u8 = 5;

/// An error that can't be shown.
#[derive(Debug)]
struct Unshown;

impl std::error::Error for Unshown {}

impl std::fmt::Display for Unshown {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("as planned");
    }
}

/// A provider that does what it is told.
#[derive(Clone, Default)]
struct Provider {
    mode: Arc<AtomicU8>,
    asked: Arc<AtomicUsize>,
}

impl Provider {
    fn set(&self, mode: u8) {
        self.mode.store(mode, Ordering::SeqCst);
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn given_to(&self, builder: LocksBuilder) -> LocksBuilder {
        let provider = self.clone();
        builder.credentials(move || provider.clone().answer())
    }

    fn answer(self) -> Pin<Box<dyn Future<Output = Answer> + Send>> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            match self.mode.load(Ordering::SeqCst) {
                FAILS => Err(format!("the vault says no to {SECRET}").into()),
                FAILS_UNSHOWN => Err(Unshown.into()),
                PANICS => panic!("as planned"),
                HANGS => pending().await,
                BLOCKS => loop {
                    thread::park();
                },
                _ => Ok(Credentials::new("app", SECRET)),
            }
        })
    }
}

fn server_with_user() -> Option<Server> {
    let server = users_are_known()?;
    server.run::<()>(&format!("ACL SETUSER app on >{SECRET} ~* &* +@all"));
    Some(server)
}

/// Has the locks connect again. Within a second they do so without a question.
fn end_sessions(server: &Server) {
    server.run::<u64>("CLIENT KILL USER app");
    thread::sleep(ms(250));
}

/// Locks go on by the last answer, and `ping` and `server_info` say that there is no other.
fn goes_on(mode: u8, words: &str) {
    let Some(server) = server_with_user() else { return };
    let provider = Provider::default();
    let locks =
        provider.given_to(Locks::builder().url(server.url())).ttl(ms(3_000)).open().unwrap();
    let held = take(locks.mutex("held"));
    locks.blocking_ping().unwrap();
    provider.set(mode);
    let said = || {
        end_sessions(&server);
        locks.blocking_ping().is_err_and(|error| error.to_string().contains(words))
    };
    eventually(PATIENCE, "ping says why", said);
    let info = locks.blocking_server_info().unwrap();
    assert!(info.warnings.iter().any(|warning| warning.contains(words)), "{:?}", info.warnings);
    take(locks.mutex("other")).blocking_release().unwrap();
    server.run::<u64>("CLIENT KILL USER app");
    take(locks.mutex("other")).blocking_release().unwrap();
    assert!(is_held(&held));
    held.blocking_verify().unwrap();
    if mode != BLOCKS {
        provider.set(ANSWERS);
        eventually(PATIENCE, "it answers again", || locks.blocking_ping().is_ok());
        assert!(
            locks
                .blocking_server_info()
                .unwrap()
                .warnings
                .iter()
                .all(|it| !it.contains("provider"))
        );
    }
    held.blocking_release().unwrap();
}

#[test]
fn cr4_the_last_credentials_go_on_when_their_provider_fails() {
    goes_on(FAILS, "the provider of credentials fails: the vault says no");
}

#[test]
fn cr4_the_last_credentials_go_on_when_their_provider_panics() {
    goes_on(PANICS, "the provider of credentials panicked");
}

#[test]
fn cr4_the_last_credentials_go_on_when_the_error_of_their_provider_panics() {
    goes_on(FAILS_UNSHOWN, "the provider of credentials panicked");
}

#[test]
fn cr4_the_last_credentials_go_on_when_their_provider_hangs() {
    goes_on(HANGS, "the provider of credentials has not answered within 10s");
}

#[test]
fn cr4_the_last_credentials_go_on_when_their_provider_blocks() {
    goes_on(BLOCKS, "the provider of credentials blocks its thread");
}

#[test]
fn cr5_without_credentials_a_call_waits_and_says_why() {
    let Some(server) = server_with_user() else { return };
    let provider = Provider::default();
    provider.set(FAILS);
    let locks = provider.given_to(Locks::builder().url(server.url())).outage(ms(2_500));
    let locks = locks.open().unwrap();
    let start = Instant::now();
    let error = locks.mutex("job").blocking_acquire().map(drop).unwrap_err();
    assert!(error.to_string().contains("the vault says no"), "{error}");
    let LockError::Backend { source, .. } = &error else { panic!("{error:?}") };
    assert!(source.is_retryable(), "{error}");
    let most = 2 + usize::try_from(start.elapsed().as_secs()).unwrap();
    assert!((2..=most).contains(&provider.asked()), "at most once a second: {}", provider.asked());
    provider.set(ANSWERS);
    take(locks.mutex("job").wait(PATIENCE)).blocking_release().unwrap();
}

#[test]
fn cr6_a_password_that_a_server_refuses_is_asked_for_again() {
    let Some(server) = server_with_user() else { return };
    let provider = Provider::default();
    let locks = provider.given_to(Locks::builder().url(server.url())).open().unwrap();
    server.run::<()>("ACL SETUSER app resetpass >another");
    let waiting = thread::spawn(move || {
        let start = Instant::now();
        take(locks.mutex("job").wait(PATIENCE)).blocking_release().unwrap();
        start.elapsed()
    });
    eventually(PATIENCE, "it is asked again", || provider.asked() >= 3);
    assert!(!waiting.is_finished());
    server.run::<()>(&format!("ACL SETUSER app resetpass >{SECRET}"));
    let took = waiting.join().unwrap();
    assert!(took >= Duration::from_secs(1), "there is a question a second at most: {took:?}");
}

#[test]
fn cr7_questions_end_with_the_locks() {
    let Some(server) = server_with_user() else { return };
    let provider = Provider::default();
    let locks = provider.given_to(Locks::builder().url(server.url())).open().unwrap();
    locks.blocking_ping().unwrap();
    provider.set(FAILS);
    eventually(PATIENCE, "it is asked", || {
        end_sessions(&server);
        provider.asked() > 1
    });
    drop(locks);
    let mut before = provider.asked();
    eventually(PATIENCE, "the provider is not asked any more", || {
        thread::sleep(ms(1_200));
        std::mem::replace(&mut before, provider.asked()) == provider.asked()
    });
    holds_for(ms(1_200), "the provider is not asked any more", || provider.asked() == before);
}

/// A server that knows no command, and says with what it was asked.
fn repeats_everything() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut asked = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut asked) {
                    let commands = asked[..length].iter().filter(|byte| **byte == b'*').count();
                    let said = format!(
                        "-ERR unknown command 'AUTH', with args beginning with: 'app' '{SECRET}'\r\n"
                    );
                    if stream.write_all(said.repeat(commands).as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    url
}

#[test]
fn cr8_credentials_are_shown_nowhere() {
    in_own_process(|| {
        log::listen();
        let Some(server) = server_with_user() else { return };
        let provider = Provider::default();
        let builder = || provider.given_to(Locks::builder().url(server.url())).outage(ms(1_500));
        let mut shown =
            vec![format!("{:?}", builder()), format!("{:?}", Credentials::new("app", SECRET))];
        let locks = builder().open().unwrap();
        take(locks.mutex("job")).blocking_release().unwrap();
        shown.push(format!("{locks:?} {:?}", locks.mutex("job")));
        provider.set(FAILS);
        let mut failed = None;
        eventually(PATIENCE, "it fails", || {
            end_sessions(&server);
            failed = locks.blocking_ping().err();
            failed.as_ref().is_some_and(|error| error.to_string().contains("provider"))
        });
        shown.push(format!("{failed:?} {}", failed.as_ref().unwrap()));
        shown.push(format!("{:?}", locks.blocking_server_info().unwrap()));
        eventually(PATIENCE, "it is told", || {
            log::count(&["the provider of credentials fails"]) > 0
        });
        server.run::<()>("ACL SETUSER app resetpass >another");
        server.run::<u64>("CLIENT KILL USER app");
        let error = locks.mutex("job").blocking_acquire().map(drop).unwrap_err();
        assert!(error.to_string().contains("refused the credentials"), "{error}");
        shown.push(format!("{error:?} {error}"));
        // This one repeats what it does not know.
        let odd = Locks::builder().url(repeats_everything()).outage(ms(500));
        let odd = provider.given_to(odd).open().unwrap();
        provider.set(ANSWERS);
        let error = odd.mutex("job").blocking_acquire().map(drop).unwrap_err();
        shown.push(format!("{error:?} {error}"));
        println!("{}", shown.join("\n"));
        assert!(shown.iter().all(|text| !text.contains(SECRET)), "{shown:#?}");
        assert_eq!(log::count(&[SECRET]), 0, "in events");
        assert!(log::count(&["connected"]) > 0, "there were some");
    });
}

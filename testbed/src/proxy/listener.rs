use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use std::{io, thread};

use super::Shared;
use super::connection::Link;

/// What happens to those who connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListenMode {
    Pass,
    Refuse,
    Ignore,
}

/// Listens on the port, from a thread that ends with the proxy.
pub(super) fn start(port: u16, shared: Arc<Shared>) -> io::Result<()> {
    let listener = bind(port)?;
    thread::Builder::new().name("proxy-listener".into()).spawn(move || {
        run(port, listener, &shared);
    })?;
    Ok(())
}

/// Makes the listener's thread look at the mode, by a connection that ends its `accept`.
pub(super) fn wake(port: u16) {
    let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
}

fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
}

fn run(port: u16, listener: TcpListener, shared: &Arc<Shared>) {
    let mut listener = Some(listener);
    let mut ignored = Vec::new();
    while !shared.ended.load(Ordering::SeqCst) {
        let mode = {
            let mut state = shared.lock();
            let mode = state.mode;
            if state.in_force != mode {
                if mode == ListenMode::Refuse {
                    // The only way to be refused is that nothing listens.
                    listener = None;
                } else if listener.is_none() {
                    listener = bind(port).ok();
                }
                if mode != ListenMode::Ignore {
                    ignored.clear();
                }
                if listener.is_some() || mode == ListenMode::Refuse {
                    state.in_force = mode;
                    shared.changed.notify_all();
                }
            }
            mode
        };
        let Some(listening) = &listener else {
            let state = shared.lock();
            if state.mode == state.in_force {
                // The timeout covers a proxy that is dropped between our look and the wait.
                let wait = shared.changed.wait_timeout(state, Duration::from_millis(100));
                drop(wait.unwrap_or_else(PoisonError::into_inner));
            } else {
                thread::sleep(Duration::from_millis(1));
            }
            continue;
        };
        let Ok((stream, _)) = listening.accept() else {
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        if shared.ended.load(Ordering::SeqCst) {
            return;
        }
        let mut state = shared.lock();
        if state.mode != mode {
            // This connection was made by `wake`, so that a new mode is noticed.
            continue;
        }
        let number = shared.accepted.fetch_add(1, Ordering::SeqCst);
        if mode == ListenMode::Ignore {
            ignored.push(stream);
            continue;
        }
        let faults = state.faults.clone();
        let spares = shared.spares_replication.load(Ordering::SeqCst);
        if let Ok(link) = Link::open(number, stream, state.upstream, faults, spares) {
            state.add(link);
        }
    }
}

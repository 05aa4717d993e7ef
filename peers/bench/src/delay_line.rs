//! A path to a server that takes time, as a network does.
//!
//! One thread carries what all connections say: where eight processes and a server share two cores, a
//! thread for each direction of each connection would take a good part of what is measured.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub(crate) struct DelayLine {
    port: u16,
    has_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DelayLine {
    /// What arrives at the port of the server, or comes from there, is this late.
    pub(crate) fn to(server: u16, delay: Duration) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&has_ended);
        let thread = thread::Builder::new().name("delay-line".into()).spawn(move || {
            if let Err(error) = carry(&listener, server, delay, &ended) {
                eprintln!("the delayed path has broken: {error:#}");
            }
        })?;
        Ok(Self { port, has_ended, thread: Some(thread) })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for DelayLine {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::SeqCst);
        // The thread waits for the first byte of either side.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What goes from one socket to another one. Those of one connection share both.
struct Flow {
    from: Arc<TcpStream>,
    to: Arc<TcpStream>,
    pieces: VecDeque<(Instant, Vec<u8>)>,
    is_over: bool,
}

impl Flow {
    /// Takes in what has arrived.
    fn read(&mut self, delay: Duration, buffer: &mut [u8]) {
        match self.from.as_ref().read(buffer) {
            Ok(0) => self.is_over = true,
            Ok(read) => self.pieces.push_back((Instant::now() + delay, buffer[..read].to_vec())),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.is_over = true,
        }
    }

    /// Hands on what is due. What the socket does not take is tried again with the next look.
    fn write(&mut self, now: Instant) {
        while let Some((_, piece)) = self.pieces.front_mut().filter(|(due, _)| *due <= now) {
            match self.to.as_ref().write(piece) {
                Ok(written) if written == piece.len() => drop(self.pieces.pop_front()),
                Ok(written) => drop(piece.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.is_over = true;
                    return;
                }
            }
        }
    }
}

fn carry(listener: &TcpListener, server: u16, delay: Duration, ended: &AtomicBool) -> Result<()> {
    let (mut flows, mut buffer) = (Vec::<Flow>::new(), vec![0; 64 * 1024]);
    while !ended.load(Ordering::SeqCst) {
        let next = flows.iter().filter_map(|flow| flow.pieces.front()).map(|(due, _)| *due).min();
        let patience = next.map(|due| due.saturating_duration_since(Instant::now()));
        let patience = patience.map(Timespec::try_from).transpose()?;
        let mut watched = vec![PollFd::new(listener, PollFlags::IN)];
        watched.extend(flows.iter().map(|flow| PollFd::new(&*flow.from, PollFlags::IN)));
        poll(&mut watched, patience.as_ref()).context("nothing can be waited for")?;
        let speaks: Vec<_> = watched.iter().map(|it| !it.revents().is_empty()).collect();
        for (flow, _) in flows.iter_mut().zip(&speaks[1..]).filter(|(_, speaks)| **speaks) {
            flow.read(delay, &mut buffer);
        }
        let now = Instant::now();
        flows.iter_mut().for_each(|flow| flow.write(now));
        if speaks[0] {
            flows.extend(accept(listener, server)?.into_iter().flatten());
        }
        close_what_is_over(&mut flows);
    }
    Ok(())
}

/// Both directions of a new connection.
fn accept(listener: &TcpListener, server: u16) -> Result<Option<[Flow; 2]>> {
    let Ok((client, _)) = listener.accept() else { return Ok(None) };
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server))?;
    for socket in [&client, &server] {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
    }
    let (client, server) = (Arc::new(client), Arc::new(server));
    let flow = |from: &Arc<TcpStream>, to: &Arc<TcpStream>| Flow {
        from: Arc::clone(from),
        to: Arc::clone(to),
        pieces: VecDeque::new(),
        is_over: false,
    };
    Ok(Some([flow(&client, &server), flow(&server, &client)]))
}

/// A connection that one side has ended is closed to both, after what was said before.
fn close_what_is_over(flows: &mut Vec<Flow>) {
    let is_over = |flow: &Flow| flow.is_over && flow.pieces.is_empty();
    if flows.iter().any(is_over) {
        let over: Vec<_> = flows.iter().filter(|flow| is_over(flow)).map(ends).collect();
        flows.retain(|flow| !over.contains(&ends(flow)));
    }
}

/// The same for both directions of a connection, and for no other one.
fn ends(flow: &Flow) -> [*const TcpStream; 2] {
    let mut ends = [Arc::as_ptr(&flow.from), Arc::as_ptr(&flow.to)];
    ends.sort();
    ends
}

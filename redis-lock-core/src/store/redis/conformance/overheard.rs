//! The messages that a server sends at each step.

use std::sync::mpsc::{Receiver, channel};
use std::thread;

use testbed::Server;

use super::steps::PATIENCE;

/// Where the test says that no message of a step is left.
const END: &str = "lock:~m:end";

/// A subscription to all channels. A pattern makes no waiter count as alive.
pub(super) struct Overheard(Receiver<(String, String)>);

impl Overheard {
    pub(super) fn at(server: &Server) -> Self {
        let mut connection = server.client().get_connection().unwrap();
        let (is_ready, listens) = channel();
        let (heard, hears) = channel();
        thread::spawn(move || {
            let mut subscription = connection.as_pubsub();
            subscription.psubscribe("lock:~m:*").unwrap();
            is_ready.send(()).unwrap();
            while let Ok(message) = subscription.get_message() {
                let text = message.get_payload().unwrap();
                if heard.send((message.get_channel_name().to_owned(), text)).is_err() {
                    return;
                }
            }
        });
        listens.recv().unwrap();
        Self(hears)
    }

    /// The messages since the last step, as channel and text, in an order of their own.
    pub(super) fn take(&self, server: &Server) -> Vec<(String, String)> {
        server.run::<i64>(&format!("PUBLISH {END} -"));
        let next = || self.0.recv_timeout(PATIENCE).expect("the server sends the last message");
        let mut heard: Vec<_> =
            std::iter::repeat_with(next).take_while(|(channel, _)| channel != END).collect();
        heard.sort();
        heard
    }
}

//! What `fuzz/fuzz_targets` tries with any bytes. It is built for these alone.

use crate::api::server_url;
use crate::domain::clock::rfc3339;
use crate::domain::label::{printable, shown};
use crate::domain::mark::Mark;
use crate::store::redis::fuzzed;
use crate::{LockKey, Token};

/// The replies in a stream of bytes are the same ones in whatever pieces it arrives.
pub fn replies(bytes: &[u8]) {
    fuzzed::replies(bytes);
}

/// Whatever a server answers to a command, scripts' answers are read.
pub fn decode(bytes: &[u8]) {
    fuzzed::decode(bytes);
}

/// Whatever is read and answered in a transaction, it is decided what to write.
pub fn transaction(bytes: &[u8]) {
    fuzzed::transaction(bytes);
}

/// Whatever a node says of a cluster's slots.
pub fn slots(bytes: &[u8]) {
    fuzzed::slots(bytes);
}

/// Whatever sentinels say of a primary and of each other.
pub fn sentinel(bytes: &[u8]) {
    fuzzed::sentinel(bytes);
}

/// Whatever is given as the URL of a server.
pub fn url(text: &str) {
    let all: Vec<String> = text.split('\n').map(ToOwned::to_owned).collect();
    let _ = all.iter().map(|url| server_url::read(url)).find_map(Result::err);
    let _ = server_url::read_cluster(&all);
    let _ = server_url::read_quorum(&all);
    let _ = server_url::read_sentinels(&all, String::new());
}

/// Whatever stands at a lock's key, in a token that is adopted, in a label, and in a key.
pub fn token(text: &str) {
    let read = Token::from_wire(text);
    let _ = (read.label(), read.since().map(rfc3339), read.has_channel(), read.may_be_idle());
    assert!(!read.to_string().chars().any(char::is_control));
    let _ = Mark::read(text).map(|mark| rfc3339(mark.at));
    if let Ok(given) = text.parse::<Token>() {
        assert_eq!(given.to_string().parse::<Token>().ok(), Some(given));
    }
    let label = printable(text);
    assert!(label.len() <= 128 && !label.contains([' ', '+', '#']));
    assert!(!label.chars().any(char::is_control));
    let _ = shown(&label);
    let _ = LockKey::from(text.to_owned()).check();
}

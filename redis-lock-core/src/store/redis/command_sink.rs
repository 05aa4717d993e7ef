//! Where commands go once they are encoded.

use redis::Cmd;

/// Receives the commands that have to be sent.
pub(super) trait CommandSink {
    fn send(&mut self, cmd: Cmd);

    /// Sends a command that consists of these words.
    fn send_words(&mut self, words: &[&[u8]]) {
        self.send(command(words));
    }
}

/// A command that consists of these words.
pub(super) fn command(words: &[&[u8]]) -> Cmd {
    let length = words.iter().map(|word| word.len()).sum();
    let mut cmd = Cmd::with_capacity(words.len(), length);
    for word in words {
        cmd.arg(*word);
    }
    cmd
}

impl CommandSink for Vec<Cmd> {
    fn send(&mut self, cmd: Cmd) {
        self.push(cmd);
    }
}

/// The bytes of the commands, as the server reads them.
impl CommandSink for Vec<u8> {
    fn send(&mut self, cmd: Cmd) {
        cmd.write_packed_command(self);
    }

    /// Without a `Cmd`, which would cost more than the rest of the work on a short command.
    fn send_words(&mut self, words: &[&[u8]]) {
        self.reserve(words.iter().map(|word| word.len() + MOST_FRAME).sum::<usize>() + MOST_FRAME);
        write_length(self, b'*', words.len());
        for word in words {
            write_length(self, b'$', word.len());
            self.extend_from_slice(word);
            self.extend_from_slice(b"\r\n");
        }
    }
}

/// The most bytes that frame a word: a sign, a length, and two ends of line.
const MOST_FRAME: usize = 1 + 20 + 4;

fn write_length(out: &mut Vec<u8>, sign: u8, length: usize) {
    // Most words have less than a hundred bytes.
    let digit = |number: usize| b'0' + (number % 10) as u8;
    if length < 10 {
        return out.extend_from_slice(&[sign, digit(length), b'\r', b'\n']);
    } else if length < 100 {
        let digits = [digit(length / 10), digit(length)];
        return out.extend_from_slice(&[sign, digits[0], digits[1], b'\r', b'\n']);
    }
    out.push(sign);
    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_written_as_the_driver_writes_them() {
        let long = [b'x'; 12_345];
        // Around each number of digits of a length.
        let lengths = [0, 1, 9, 10, 11, 99, 100, 101, 999, 1_000].map(|length| &long[..length]);
        let all_bytes: Vec<u8> = (0..=255).collect();
        for words in [
            &[b"PING".as_slice()][..],
            &[b"SET", b"a b\r\n", b"", &long, b"NX"],
            &[b"SET", &all_bytes, b"-1", b"$3\r\n*1\r\n"],
            &lengths,
            &[b"x".as_slice(); 9],
            &[b"x".as_slice(); 12],
            &[b"x".as_slice(); 100],
        ] {
            let mut out = b"before".to_vec();
            out.send_words(words);
            let packed = command(words).get_packed_command();
            assert_eq!(out, [b"before".as_slice(), &packed].concat());
        }
    }
}

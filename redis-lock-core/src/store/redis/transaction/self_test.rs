//! Tests whether a server honours `WATCH`: some accept it and do nothing.

use std::sync::Arc;

use redis::{Cmd, Value};

use super::pool::{Lane, Leased, Pool, lost};
use crate::domain::error::{Fault, FaultClass};
use crate::store::redis::decode;

/// Changes a key while it is watched. `key` belongs to no lock.
pub(in crate::store::redis) async fn self_test(pool: &Arc<Pool>, key: &str) -> Result<(), Fault> {
    let (watching, changing) = tokio::join!(pool.lease(Lane::Others), pool.lease(Lane::Others));
    let (mut watching, mut changing) = (watching?, changing?);
    let with = |name: &str| {
        let mut cmd = redis::cmd(name);
        cmd.arg(key);
        cmd
    };
    ask(&mut watching, vec![with("WATCH"), with("GET"), redis::cmd("MULTI")]).await?;
    let mut change = with("SETEX");
    change.arg(2).arg("-");
    ask(&mut changing, vec![change]).await?;
    let executed = ask(&mut watching, vec![with("GET"), redis::cmd("EXEC")]).await?;
    ask(&mut changing, vec![with("DEL")]).await?;
    if !matches!(executed.last(), Some(Value::Nil)) {
        let what = "the server accepts WATCH but does not honour it, so two holders could have one lock; \
                    grant the rights `+eval +evalsha`, or use another server";
        return Err(Fault::new(FaultClass::Permanent, what));
    }
    watching.give_back();
    changing.give_back();
    Ok(())
}

async fn ask(leased: &mut Leased<'_>, cmds: Vec<Cmd>) -> Result<Vec<Value>, Fault> {
    let answers = leased.ask(cmds).await.map_err(|error| lost(&error))?;
    let refused = answers.iter().find_map(|answer| match answer {
        Value::ServerError(error) => Some(decode::refusal(error)),
        _ => None,
    });
    match refused {
        Some(fault) => {
            let what = format!("locks need scripts or transactions: {}", fault.what);
            Err(Fault { what, ..fault })
        }
        None => Ok(answers),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    /// Reads the name of the next command, if there is one.
    fn command(input: &mut impl BufRead) -> Option<String> {
        let mut line = || {
            let mut line = String::new();
            input.read_line(&mut line).ok().filter(|count| *count > 0)?;
            Some(line.trim_end().to_owned())
        };
        let count: usize = line()?.strip_prefix('*')?.parse().ok()?;
        let words: Option<Vec<_>> = (0..count).map(|_| line().and_then(|_| line())).collect();
        words?.first().map(|word| word.to_uppercase())
    }

    /// A server that executes transactions although watched keys have changed.
    fn serve(stream: &TcpStream) {
        let mut input = BufReader::new(stream.try_clone().unwrap());
        let mut in_transaction = false;
        while let Some(name) = command(&mut input) {
            let answer = match name.as_str() {
                "EXEC" => "*1\r\n$-1\r\n",
                "MULTI" | "WATCH" | "SETEX" | "CLIENT" => "+OK\r\n",
                _ if in_transaction => "+QUEUED\r\n",
                "DEL" => ":1\r\n",
                _ => "$-1\r\n",
            };
            in_transaction = name == "MULTI" || in_transaction && name != "EXEC";
            if (&mut &*stream).write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    #[test]
    fn s4_a_server_that_does_not_honour_watch_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || serve(&stream));
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let test = |port: u16| {
            let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
            let pool = Pool::new(
                client,
                &crate::store::redis::Terms::new("lock", "m", Duration::from_secs(5)),
            );
            runtime.block_on(self_test(&pool, "lock:~m:x:~probe"))
        };
        let fault = test(port).unwrap_err();
        assert_eq!(fault.class, FaultClass::Permanent);
        assert!(fault.what.contains("does not honour it"), "{}", fault.what);
        let server = testbed::Server::start();
        assert_eq!(test(server.port()), Ok(()));
        server.assert_clean();
    }
}

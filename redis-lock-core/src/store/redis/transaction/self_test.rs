//! Whether a server honours `WATCH`: some accept it and do nothing.

use redis::{Cmd, Value};

use super::pool::{Leased, Pool, lost};
use crate::domain::error::{Fault, FaultClass};
use crate::store::redis::decode;

/// Changes a key while it is watched. `key` is nobody's.
pub(in crate::store::redis) async fn self_test(pool: &Pool, key: &str) -> Result<(), Fault> {
    let mut watching = pool.lease().await?;
    let mut changing = pool.lease().await?;
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
        let what = "the server accepts WATCH and does not honour it, so two could have a lock at \
                    once; grant the rights `+eval +evalsha`, or use another server";
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

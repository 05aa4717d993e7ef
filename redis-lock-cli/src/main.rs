//! `redis-lock`: looks at distributed locks, ends them, and runs commands under them.

mod acquire;
mod args;
mod check;
mod duration;
mod exit;
mod getting;
mod json;
mod list;
mod manual;
mod release;
mod run;
mod screen;
mod segments;
mod server;
mod show;
mod signals;
mod table;
mod timestamp;
mod watch;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue};

use args::{Arguments, Task};
use exit::{Code, Failure, reported};

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == run::start::WORD) {
        return run::start::become_command(words);
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(mut error) => {
            without_tip_to_quote(&mut error);
            let code = if error.use_stderr() { Code::USAGE } else { Code::OK };
            // A failure to write to standard error can't be reported.
            let _ = error.print();
            return code.into();
        }
    };
    let json = arguments.common.json;
    match perform(arguments) {
        Ok(code) => code.into(),
        Err(failure) => failed(&failure, json),
    }
}

/// For an unknown option the parser suggests `-- --option`, which would run the option as a command.
fn without_tip_to_quote(error: &mut clap::Error) {
    let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested) else {
        return;
    };
    tips.retain(|tip| !tip.to_string().contains("as a value"));
    if !tips.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
}

/// Reports why the program ends.
fn failed(failure: &Failure, json: bool) -> ExitCode {
    if failure.is_printed() {
        let line = match json {
            true => json::failure(failure),
            false => {
                let text = failure.to_string();
                let lines: Vec<_> = text.lines().map(table::plain).collect();
                format!("redis-lock: {}", lines.join("\n"))
            }
        };
        // A failure to write to standard error can't be reported.
        let _ = writeln!(io::stderr(), "{line}");
    }
    failure.code().into()
}

fn perform(arguments: Arguments) -> Result<Code, Failure> {
    let Arguments { common, task } = arguments;
    match &task {
        Task::Man(task) => return manual::man(task),
        Task::Completions(task) => return manual::completions(task),
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let locks = server::locks(&common, &task).await?;
        let unread = |failure| reported(Err::<(), Failure>(failure), Code::OK);
        let done = match task {
            Task::Ls(task) => list::list(&locks, &common, &task).await.or_else(unread),
            Task::Show(task) => show::show(&locks, &common, &task).await,
            Task::Watch(task) => watch::watch(&locks, &common, &task).await.or_else(unread),
            Task::Acquire(task) => acquire::acquire(&locks, &common, &task).await,
            Task::Release(task) => release::release(&locks, &common, &task).await,
            Task::Run(task) => run::run(&locks, &common, task).await,
            Task::Check(task) => check::check(&locks, &common, &task).await,
            // They need no server, and have returned above.
            Task::Man(_) | Task::Completions(_) => Ok(Code::OK),
        };
        // Sends the releases that are still queued.
        locks.shutdown().await;
        done
    })
}

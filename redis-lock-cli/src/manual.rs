//! `man` and `completions`: both are made from the command line's own definition.

use std::io::{Write, stdout};

use clap::CommandFactory;

use crate::args::{Arguments, Completions, Man};
use crate::exit::{Code, Failure, reported};

/// The manual page of the program, or of one of its commands.
pub(crate) fn man(task: &Man) -> Result<Code, Failure> {
    let mut program = Arguments::command();
    // Gives the commands their full names, as in `redis-lock run`.
    program.build();
    let named = task.command.as_deref().map(|name| program.find_subcommand(name));
    let page = match named {
        None => program,
        Some(Some(command)) => command.clone(),
        Some(None) => {
            let name = task.command.as_deref().unwrap_or_default();
            let what = format!("there is no command `{name}`; `redis-lock help` lists them");
            return Err(Failure::Usage(what));
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text)?;
    reported(stdout().write_all(&text), Code::OK)
}

/// The script by which a shell completes the program's arguments.
pub(crate) fn completions(task: &Completions) -> Result<Code, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(task.shell, &mut Arguments::command(), "redis-lock", &mut text);
    reported(stdout().write_all(&text), Code::OK)
}

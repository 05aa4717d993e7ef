//! One library, one fault, one round.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use testbed::Program;

use crate::board::Board;
use crate::clock::now;
use crate::contender::Contender;
use crate::fault::Fault;
use crate::figures::Figures;
use crate::install::Installed;
use crate::judge;
use crate::options::Options;
use crate::scene::Scene;
use crate::worker::{REJOIN, Terms};

const WORKERS: usize = 4;
const TTL: Duration = Duration::from_secs(1);
const WAIT: Duration = Duration::from_secs(3);
const COMMAND_TIMEOUT: Duration = Duration::from_millis(400);

/// For how long the workers begin new calls.
const ROUND: Duration = Duration::from_millis(6_000);

/// A call that has not returned so long after that never will: above the wait, a body and some tries.
const NEVER: Duration = Duration::from_secs(7);

pub(crate) fn run(
    contender: Contender,
    fault: Fault,
    round: usize,
    installed: &Installed,
    options: &Options,
) -> Result<Figures> {
    let mut scene = Scene::start(contender, fault)?;
    if contender == Contender::OursQuorum {
        sleep(REJOIN);
    }
    std::fs::create_dir_all(&options.histories)?;
    let file = format!("{}-{}-{round}.history", fault.id(), contender.id());
    let board = Board::new(WORKERS, &options.histories.join(file))?;
    let mut urls = scene.urls();
    if contender == Contender::Ours && fault == Fault::FailOver {
        urls.push("replicated".into());
    }
    let terms = Terms {
        library: contender.id().into(),
        urls,
        key: "verify".into(),
        ttl: TTL,
        body: fault.body(),
        wait: WAIT,
        command_timeout: COMMAND_TIMEOUT,
    };
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for number in 0..WORKERS {
            let mut worker = start(contender, &terms, installed)?;
            let (input, output) = (worker.stdin().context("its input")?, worker.stdout());
            let output = output.context("its output")?;
            let board = &board;
            scope.spawn(move || serve(number, board, input, BufReader::new(output)));
            workers.push(worker);
        }
        let until = board.begin(ROUND).context("a worker did not start in time")?;
        let pids: Vec<u32> = workers.iter().map(Program::pid).collect();
        scene.cause(fault, &board, &pids);
        let end = until + u64::try_from(NEVER.as_nanos())?;
        while !board.all_are_gone() && now() < end {
            sleep(Duration::from_millis(5));
        }
        let history = board.history();
        drop(workers);
        // What is left then is left although its lease is over.
        sleep(TTL + Duration::from_millis(300));
        Ok(judge::judge(history, scene.keys()))
    })
}

fn start(contender: Contender, terms: &Terms, installed: &Installed) -> Result<Program> {
    let mut command = installed.command(contender)?;
    command.args(terms.arguments()).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::null());
    Ok(Program::spawn(command))
}

/// Takes what a worker says, and answers what it asks, until it ends.
fn serve(number: usize, board: &Board, mut input: impl Write, output: impl BufRead) {
    for line in output.lines().map_while(Result::ok) {
        match board.take(number, &line) {
            Ok(answer) => {
                let Some(answer) = answer else { continue };
                if writeln!(input, "{answer}").and_then(|()| input.flush()).is_err() {
                    break;
                }
            }
            Err(error) => eprintln!("worker {number} said `{line}`: {error:#}"),
        }
    }
    board.is_gone(number);
}

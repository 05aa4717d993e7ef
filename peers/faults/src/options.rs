use std::path::PathBuf;

use clap::Parser;

use crate::contender::Contender;
use crate::fault::Fault;

/// One workload under one set of faults, against this library and eight others
#[derive(Parser)]
#[command(name = "cargo xtask verify", bin_name = "cargo xtask verify")]
pub(crate) struct Options {
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// How many cells run at the same time
    #[arg(long, default_value_t = 3)]
    pub(crate) beside: usize,
    /// Only this fault; may be given several times
    #[arg(long = "fault", value_parser = Fault::named)]
    pub(crate) faults: Vec<Fault>,
    /// Only this library; may be given several times
    #[arg(long = "library", value_parser = Contender::named)]
    pub(crate) contenders: Vec<Contender>,
    /// The folder for tables and plots; without it they are only shown
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// Where the histories stay.
    #[arg(skip = testbed::target_dir().join("verify/histories"))]
    pub(crate) histories: PathBuf,
    /// As it was typed.
    #[arg(skip = typed())]
    pub(crate) command: String,
}

impl Options {
    pub(crate) fn read() -> Self {
        let mut options = Self::parse();
        if options.faults.is_empty() {
            options.faults = Fault::ALL.to_vec();
        }
        if options.contenders.is_empty() {
            options.contenders = Contender::ALL.to_vec();
        }
        options
    }
}

fn typed() -> String {
    let words = std::env::args().skip(1).take_while(|word| word != "--out");
    ["cargo xtask verify".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

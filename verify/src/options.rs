use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::contender::Contender;
use crate::fault::Fault;

/// What is run, and where the results go.
pub(crate) struct Options {
    pub(crate) rounds: usize,
    /// How many cells run at the same time.
    pub(crate) beside: usize,
    pub(crate) faults: Vec<Fault>,
    pub(crate) contenders: Vec<Contender>,
    /// Where tables and plots are written; without it they are only shown.
    pub(crate) out: Option<PathBuf>,
    /// Where the histories stay.
    pub(crate) histories: PathBuf,
    /// As it was typed.
    pub(crate) command: String,
}

impl Options {
    /// `[--rounds N] [--beside N] [--fault id]… [--library id]… [--out dir]`.
    pub(crate) fn read(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            rounds: 3,
            beside: 3,
            faults: Vec::new(),
            contenders: Vec::new(),
            out: None,
            histories: testbed::target_dir().join("verify/histories"),
            command: ["cargo xtask verify"]
                .into_iter()
                .chain(arguments.iter().map(String::as_str).take_while(|word| *word != "--out"))
                .collect::<Vec<_>>()
                .join(" "),
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let value = rest.next().with_context(|| format!("`{argument}` needs a value"))?;
            match argument.as_str() {
                "--rounds" => options.rounds = value.parse()?,
                "--beside" => options.beside = value.parse()?,
                "--fault" => options.faults.push(Fault::named(value)?),
                "--library" => options.contenders.push(Contender::named(value)?),
                "--out" => options.out = Some(value.into()),
                other => bail!("there is no option `{other}`"),
            }
        }
        if options.faults.is_empty() {
            options.faults = Fault::ALL.to_vec();
        }
        if options.contenders.is_empty() {
            options.contenders = Contender::ALL.to_vec();
        }
        Ok(options)
    }
}

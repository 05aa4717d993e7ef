//! The command line: what to measure.

use anyhow::{Result, bail};
use testbed::Flavor;

pub(crate) const USAGE: &str = "\
peers [options]

  --quick               few short rounds: a first look, nothing to publish
  --works a,b           only these works (`--works list` shows them)
  --peers a,b           only these libraries
  --servers redis,valkey
  --rounds n            instead of each work's own number of rounds
  --out dir             write results.md, results.json and the plots there
  --draw dir            only draw the plots of the results.json there
  --command text        what the results say they were made with
";

pub(crate) struct Arguments {
    pub(crate) quick: bool,
    pub(crate) works: Option<Vec<String>>,
    pub(crate) peers: Option<Vec<String>>,
    pub(crate) servers: Vec<Flavor>,
    pub(crate) rounds: Option<usize>,
    pub(crate) out: Option<String>,
    pub(crate) draw: Option<String>,
    pub(crate) command: Option<String>,
}

/// The name that selects the measurements of growth on the command line, as if they were a work.
pub(crate) const GROWTH: &str = "growth";

impl Arguments {
    /// Whether growth is measured: in a full run, and when asked for.
    pub(crate) fn has_growth(&self) -> bool {
        let named = |names: &Vec<String>| names.iter().any(|name| name == GROWTH);
        self.works.as_ref().map_or_else(|| self.peers.is_none(), named)
    }

    pub(crate) fn read(words: impl Iterator<Item = String>) -> Result<Self> {
        let mut read = Self {
            quick: false,
            works: None,
            peers: None,
            servers: vec![Flavor::Redis, Flavor::Valkey],
            rounds: None,
            out: None,
            draw: None,
            command: None,
        };
        let mut words = words;
        while let Some(word) = words.next() {
            if word == "--quick" {
                read.quick = true;
                continue;
            }
            let Some(value) = words.next() else { bail!("`{word}` wants a value\n\n{USAGE}") };
            let list = || Some(value.split(',').map(str::to_owned).collect());
            match word.as_str() {
                "--works" => read.works = list(),
                "--peers" => read.peers = list(),
                "--rounds" => read.rounds = Some(value.parse()?),
                "--out" => read.out = Some(value),
                "--draw" => read.draw = Some(value),
                "--command" => read.command = Some(value),
                "--servers" => {
                    read.servers = value
                        .split(',')
                        .map(|name| match name {
                            "redis" => Ok(Flavor::Redis),
                            "valkey" => Ok(Flavor::Valkey),
                            other => bail!("there is no server `{other}`"),
                        })
                        .collect::<Result<_>>()?;
                }
                other => bail!("there is no option `{other}`\n\n{USAGE}"),
            }
        }
        Ok(read)
    }
}

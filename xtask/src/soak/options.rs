use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use super::place::PlaceKind;
use super::scripting::Mix;
use crate::server_choice::ServerChoice;

/// The default number of workers.
const WORKERS: usize = 3;

pub(crate) struct Options {
    pub(crate) minutes: f64,
    pub(crate) seed: u64,
    pub(crate) place: PlaceKind,
    pub(crate) server: ServerChoice,
    pub(crate) workers: usize,
    pub(crate) scripting: Mix,
}

pub(crate) fn options(arguments: &[String]) -> Result<Options> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
    let seed = u64::from(clock);
    let mut options = Options {
        minutes: 10.0,
        seed,
        place: PlaceKind::Single,
        server: ServerChoice::Any,
        workers: WORKERS,
        scripting: Mix::Auto,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} wants a value"))?;
        match word.as_str() {
            "--minutes" => options.minutes = value.parse().context("--minutes wants a number")?,
            "--seed" => options.seed = value.parse().context("--seed wants a whole number")?,
            "--place" => options.place = PlaceKind::parse(value)?,
            "--server" => options.server = ServerChoice::parse(value)?,
            "--workers" => options.workers = value.parse().context("--workers wants a number")?,
            "--scripting" => options.scripting = Mix::parse(value)?,
            other => bail!(
                "unknown option {other}; there are --minutes, --seed, --place, --server, --workers \
                 and --scripting"
            ),
        }
    }
    if !(options.minutes > 0.0 && options.minutes < 100_000.0) {
        bail!("--minutes wants a number above zero");
    }
    if options.place != PlaceKind::Single && options.scripting != Mix::Auto {
        bail!("without scripts there is `--place single` only");
    }
    if options.workers == 0 {
        bail!("--workers wants at least one");
    }
    Ok(options)
}

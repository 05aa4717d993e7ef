use std::time::Duration;

use clap::Args;

use super::place::PlaceKind;
use super::scripting::Mix;
use crate::minutes::minutes;
use crate::server_choice::ServerChoice;

#[derive(Args)]
pub(crate) struct SoakOptions {
    /// How long faults happen
    #[arg(long, value_parser = minutes, default_value = "10")]
    pub(crate) minutes: Duration,
    /// The faults of an earlier run once more, though not at the same moments
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Where the locks are: single, cluster, sentinel, quorum, quorum-of-five or quorum-without-rejoin
    #[arg(long, value_parser = PlaceKind::parse, default_value = "single")]
    pub(crate) place: PlaceKind,
    #[arg(long, value_enum, default_value_t = ServerChoice::Redis)]
    pub(crate) server: ServerChoice,
    /// How many processes use locks
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) workers: u8,
    /// Which of them do without scripts, on a single server
    #[arg(long, value_enum, default_value_t = Mix::Auto)]
    pub(crate) scripting: Mix,
}

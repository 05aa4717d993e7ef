use clap::Args;

use super::addresses::Addresses;

/// What a worker process is started with.
#[derive(Args)]
pub(crate) struct WorkerTerms {
    #[command(flatten)]
    pub(super) addresses: Addresses,
    #[arg(long)]
    pub(super) store: String,
    #[arg(long)]
    pub(super) seed: u64,
    /// Among all workers that ever ran
    #[arg(long)]
    pub(super) number: u64,
    #[arg(long)]
    pub(super) without_scripts: bool,
    #[arg(long)]
    pub(super) mutexes_only: bool,
}

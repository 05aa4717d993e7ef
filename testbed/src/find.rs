use std::env;
use std::path::PathBuf;

use crate::binary::ServerBinary;
use crate::external::on_path;
use crate::target::target_dir;
use crate::wheel;

/// Every server already on this machine, the most wanted first.
pub(crate) fn candidates() -> Vec<ServerBinary> {
    let named = env::var_os("REDIS_LOCKS_SERVER").map(PathBuf::from).into_iter();
    let on_path = ["redis-server", "valkey-server"].into_iter().filter_map(on_path);
    let fetched = wheel::VALKEY.binary(&target_dir()).into_iter();
    named.chain(on_path).chain(fetched).filter_map(|path| ServerBinary::probe(&path)).collect()
}

//! Calls the user's function that translates addresses.

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use futures_util::future::{FutureExt, Shared};
use tokio::sync::oneshot;

use crate::store::redis::address::{Address, AddressMap};

/// Calls the function on threads of its own: it may block, and must not keep the engine from
/// renewing leases.
pub(super) struct AddressMapper {
    map: AddressMap,
    calls: Arc<Calls>,
}

/// The calls that have not returned: at most one for each address.
type Calls = Mutex<BTreeMap<Address, Shared<oneshot::Receiver<Address>>>>;

impl AddressMapper {
    pub(super) fn new(map: AddressMap) -> Self {
        Self { map, calls: Arc::default() }
    }

    /// The address at which the node can be reached that announces this one.
    pub(super) async fn reached(&self, announced: &Address) -> io::Result<Address> {
        let call = self.call(announced)?;
        call.await.map_err(|_| io::Error::other("the address_map of this program panicked"))
    }

    fn call(&self, announced: &Address) -> io::Result<Shared<oneshot::Receiver<Address>>> {
        let mut calls = lock(&self.calls);
        if let Some(call) = calls.get(announced) {
            return Ok(call.clone());
        }
        let (result, call) = oneshot::channel();
        let call = call.shared();
        let (map, running, address) =
            (Arc::clone(&self.map), Arc::clone(&self.calls), announced.clone());
        thread::Builder::new().name("redis-locks-map".into()).spawn(move || {
            let mapped = catch_unwind(AssertUnwindSafe(|| map(&address.host, address.port)));
            lock(&running).remove(&address);
            if let Ok((host, port)) = mapped {
                // The caller may have given up.
                let _ = result.send(Address { host, port });
            }
        })?;
        calls.insert(announced.clone(), call.clone());
        Ok(call)
    }
}

fn lock(calls: &Calls) -> MutexGuard<'_, BTreeMap<Address, Shared<oneshot::Receiver<Address>>>> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Arbiters that are several nodes.

use redis_locks::Locks;
use testbed::{Cluster, Sentinel};

pub(crate) enum Several {
    Cluster(Cluster),
    Sentinel(Sentinel),
}

impl Several {
    pub(crate) fn open(&self) -> Locks {
        match self {
            Self::Cluster(cluster) => Locks::builder().cluster(cluster.urls()).open().unwrap(),
            Self::Sentinel(group) => {
                Locks::builder().sentinel(group.urls(), group.name()).open().unwrap()
            }
        }
    }

    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        match self {
            Self::Cluster(cluster) => cluster.assert_clean(),
            Self::Sentinel(group) => group.primary().server().assert_clean(),
        }
    }
}

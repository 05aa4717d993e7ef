//! How the cost of this library grows with the load.

mod held;
mod processes;
mod waiters;

use anyhow::Result;
use testbed::Flavor;

use crate::scene::Scene;

/// What grows, and what a lock then costs.
pub(crate) struct Axis {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) what: &'static str,
    /// What the values of [`Point`] are here.
    pub(crate) titles: Titles,
    counts: &'static [usize],
    measure: fn(&Scene<'_>, usize) -> Result<Point>,
}

/// The names of a [`Point`]'s values.
#[derive(Clone, Copy)]
pub(crate) struct Titles {
    pub(crate) commands: &'static str,
    pub(crate) client: &'static str,
    pub(crate) worst: &'static str,
}

/// The cost at one size.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Point {
    pub(crate) commands: f64,
    /// Seconds that all processes together compute.
    pub(crate) client: f64,
    /// In seconds.
    pub(crate) worst: f64,
}

/// The cost at all sizes.
pub(crate) struct Curve {
    pub(crate) axis: &'static Axis,
    pub(crate) on: Flavor,
    pub(crate) points: Vec<(usize, Point)>,
}

const OF_A_LOCK: Titles = Titles {
    commands: "commands for a lock",
    client: "clients compute for a lock",
    worst: "worst wait",
};

const ALL: &[Axis] = &[waiters::AXIS, processes::AXIS, held::AXIS];

/// What a program of this kind plays when it is started by itself.
pub(crate) const ROLES: &[(&str, testbed::Role)] =
    &[(processes::ROLE, processes::play), (held::ROLE, held::play)];

pub(crate) fn run(on: Flavor, scene: &Scene<'_>) -> Result<Vec<Curve>> {
    let curve = |axis: &'static Axis| {
        let mut points = Vec::new();
        for &count in axis.counts {
            scene.clear();
            let point = (axis.measure)(scene, count)?;
            eprintln!("{} {count}: {point:?}", axis.id);
            points.push((count, point));
        }
        Ok(Curve { axis, on, points })
    };
    ALL.iter().map(curve).collect()
}

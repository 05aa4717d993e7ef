//! How large the tables of an engine are.

use super::World;

impl World {
    /// No table has more entries than there are things to be noted in it.
    pub(super) fn check_sizes(&self) {
        for process in self.processes.iter().filter(|it| it.is_alive && !it.is_over) {
            let sizes = process.core.sizes(self.plan.keys.len());
            for (what, count, most) in sizes.into_iter().filter(|(_, count, most)| count > most) {
                let index = process.index;
                self.violated(format!("p{index} has {count} {what}, of at most {most}"));
            }
        }
    }
}

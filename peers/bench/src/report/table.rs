//! Results on a terminal.

use crate::peer::PeerId;
use crate::results::WorkResults;
use crate::sample::Sample;
use crate::work::Work;

/// One round of one library, as it comes in.
pub(crate) fn print_sample(work: &Work, round: usize, peer: PeerId, sample: &Sample) {
    let values = work.metrics.iter().filter_map(|metric| {
        let value = sample.get(metric.id)?;
        Some(format!("{} {}", metric.id, metric.unit.show(*value)))
    });
    let values: Vec<String> = values.collect();
    eprintln!("{:14} round {:2}  {:32} {}", work.id, round + 1, peer.name(), values.join(", "));
}

/// All of it, when it is done.
pub(crate) fn print(outcomes: &[WorkResults]) {
    for outcome in outcomes {
        println!("\n{} ({:?})", outcome.work.title, outcome.on);
        for &peer in outcome.work.peers {
            let values: Vec<String> = outcome
                .work
                .metrics
                .iter()
                .filter_map(|metric| {
                    let value = outcome.figure(peer, metric.id)?;
                    Some(format!("{}: {}", metric.title, metric.unit.show(value)))
                })
                .collect();
            match (values.is_empty(), outcome.unable.get(&peer)) {
                (true, Some(why)) => println!("  {:32} {why}", peer.name()),
                (true, None) => {}
                (false, _) => println!("  {:32} {}", peer.name(), values.join(", ")),
            }
        }
        for goal in outcome.goals() {
            let Some(figure) = outcome.reached(goal) else { continue };
            let verdict = if goal.bound.is_met_by(figure) { "reached" } else { "MISSED" };
            println!(
                "  {verdict}: {} {}",
                goal.describe(outcome.work.metrics),
                goal.show(outcome.work.metrics, figure)
            );
        }
    }
}

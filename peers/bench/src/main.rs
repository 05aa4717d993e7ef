//! redis-locks side by side with the other lock crates, round by round, in one run.
//!
//! `cargo xtask bench` runs it; `docs/bench/results.md` is what it found.

mod arguments;
mod child;
mod clock;
mod contest;
mod delay_line;
mod goal;
mod growth;
mod peer;
mod processors;
mod report;
mod results;
mod sample;
mod scene;
mod server_load;
mod setting;
mod traffic;
mod work;

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use clap::Parser;
use testbed::{Flavor, Server, ServerBinary};

use arguments::Arguments;
use peer::PeerId;
use results::WorkResults;
use scene::Scene;
use setting::Setting;
use work::Work;

fn main() -> Result<()> {
    testbed::dispatch(&[work::ROLES, growth::ROLES].concat());
    let arguments = Arguments::parse();
    if let Some(dir) = &arguments.draw {
        return report::draw_again(dir.as_ref());
    }
    let works = wanted_works(&arguments)?;
    let has_growth = arguments.has_growth();
    if works.is_empty() && !has_growth {
        return Ok(());
    }
    let load = setting::load();
    let mut outcomes = Vec::new();
    let (mut servers, mut curves) = (Vec::new(), Vec::new());
    for &flavor in &arguments.servers {
        let binary = binary(flavor)?;
        eprintln!("on {binary}");
        let server = Server::builder().binary(binary.clone()).start();
        servers.push(binary);
        let scene = Scene::new(&server, arguments.quick);
        for &work in &works {
            outcomes.push(run(work, flavor, &scene, &arguments));
        }
        if has_growth {
            curves.extend(growth::run(flavor, &scene)?);
        }
    }
    report::table::print(&outcomes);
    if let Some(dir) = &arguments.out {
        let command = arguments.command.as_deref().unwrap_or("cargo xtask bench");
        let setting = Setting::of(&servers, command, load);
        report::write(dir.as_ref(), &outcomes, &curves, &setting)?;
    }
    Ok(())
}

fn wanted_works(arguments: &Arguments) -> Result<Vec<&'static Work>> {
    let Some(names) = &arguments.works else { return Ok(work::ALL.iter().collect()) };
    if names.iter().any(|name| name == "list") {
        for work in work::ALL {
            println!("{:18} {}", work.id, work.title);
        }
        println!("{:18} How the cost of ours grows", arguments::GROWTH);
        return Ok(Vec::new());
    }
    let find = |name: &String| {
        let found = work::ALL.iter().find(|work| work.id == name);
        found.with_context(|| format!("there is no work `{name}`"))
    };
    names.iter().filter(|name| *name != arguments::GROWTH).map(find).collect()
}

fn binary(flavor: Flavor) -> Result<ServerBinary> {
    let found = match flavor {
        Flavor::Redis => Some(ServerBinary::any()),
        Flavor::Valkey => ServerBinary::valkey(9),
    };
    match found {
        Some(found) if found.flavor() == flavor => Ok(found),
        _ => bail!("there is no {flavor:?} server here"),
    }
}

/// All rounds of a work. Each round takes every library once, so that all of them see the same
/// machine, in its good and its bad minutes.
fn run(work: &'static Work, on: Flavor, scene: &Scene<'_>, arguments: &Arguments) -> WorkResults {
    let mut outcome = WorkResults::new(work, on);
    let chosen = |peer: &PeerId| {
        let named = |names: &Vec<String>| names.iter().any(|name| name == &peer.id());
        arguments.peers.as_ref().is_none_or(named)
    };
    let rounds = scene.times(work.rounds.0, work.rounds.1);
    for number in 0..arguments.rounds.unwrap_or(rounds) {
        let mut round = BTreeMap::new();
        for &peer in work.peers.iter().filter(|peer| chosen(peer)) {
            if let Some(why) = work.need.and_then(|need| peer.lacks(need)) {
                outcome.unable.insert(peer, why.to_owned());
                continue;
            }
            scene.clear();
            match (work.measure)(peer, scene) {
                Ok(sample) => {
                    report::table::print_sample(work, number, peer, &sample);
                    round.insert(peer, sample);
                }
                Err(error) => {
                    eprintln!("{} round {number} {peer}: {error:#}", work.id);
                    outcome.unable.insert(peer, format!("{error:#}"));
                }
            }
        }
        outcome.add_round(round);
    }
    outcome
}

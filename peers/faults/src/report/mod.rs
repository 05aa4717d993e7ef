mod markdown;
mod plot;

use std::fs;
use std::time::Duration;

use anyhow::Result;

use crate::Outcomes;
use crate::install::Installed;
use crate::options::Options;

/// Shows the tables, and writes them and the plots where the options say.
pub(crate) fn write(
    options: &Options,
    installed: &Installed,
    outcomes: &Outcomes,
    took: Duration,
) -> Result<()> {
    let text = markdown::render(options, installed, outcomes, took);
    let Some(out) = &options.out else {
        println!("{text}");
        return Ok(());
    };
    fs::create_dir_all(out)?;
    fs::write(out.join("results.md"), text)?;
    for &fault in &options.faults {
        fs::write(out.join(format!("{}.svg", fault.id())), plot::render(fault, outcomes)?)?;
    }
    Ok(())
}

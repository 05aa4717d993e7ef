use std::time::{Duration, Instant};

use super::screen::Screen;

/// A bar that fills up in place on a terminal, and a line now and then in a log.
pub(crate) struct Progress<'a> {
    name: &'a str,
    total: u64,
    shown: Option<Instant>,
    screen: &'a Screen,
}

const WIDTH: u64 = 30;

impl<'a> Progress<'a> {
    pub(crate) fn new(name: &'a str, total: u64, screen: &'a Screen) -> Self {
        Self { name, total, shown: None, screen }
    }

    pub(crate) fn show(&mut self, done: u64, lost: u64) {
        let pause = Duration::from_millis(if self.screen.is_terminal() { 50 } else { 1000 });
        if self.shown.is_none_or(|shown| shown.elapsed() >= pause) {
            self.shown = Some(Instant::now());
            self.draw(done, lost);
        }
    }

    pub(crate) fn finish(&mut self, done: u64, lost: u64) {
        self.draw(done, lost);
        if self.screen.is_terminal() {
            self.screen.write("\n");
        }
    }

    fn draw(&self, done: u64, lost: u64) {
        let full = usize::try_from(done * WIDTH / self.total.max(1)).unwrap_or_default();
        let empty = usize::try_from(WIDTH).unwrap_or_default().saturating_sub(full);
        let bar = format!("{}{}", "█".repeat(full), "░".repeat(empty));
        let line = format!("{:<20}{bar} {done:>5} of {}, {lost} lost", self.name, self.total);
        let terminal = self.screen.is_terminal();
        self.screen.write(&if terminal { format!("\r{line}   ") } else { format!("{line}\n") });
    }
}

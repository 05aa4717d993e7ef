use crate::event::Event;

/// What the lock protects: a counter that trusts the lock, and one that compares fencing numbers.
#[derive(Debug, Default)]
pub(crate) struct Store {
    plain: u64,
    plain_writes: u64,
    fenced: u64,
    fenced_writes: u64,
    largest: u64,
}

impl Store {
    /// What a worker is answered, where it asks for anything.
    pub(crate) fn answer(&mut self, event: &Event) -> Option<String> {
        match event {
            Event::Read { fence } => {
                let fenced = fence.filter(|fence| *fence >= self.largest);
                self.largest = fenced.unwrap_or(self.largest);
                let fenced = fenced.map_or_else(|| "-".to_owned(), |_| self.fenced.to_string());
                Some(format!("{} {fenced}", self.plain))
            }
            Event::Write { fence, plain, fenced } => {
                (self.plain, self.plain_writes) = (*plain, self.plain_writes + 1);
                if let (Some(fence), Some(fenced)) = (fence, fenced)
                    && *fence >= self.largest
                {
                    self.largest = *fence;
                    (self.fenced, self.fenced_writes) = (*fenced, self.fenced_writes + 1);
                }
                Some("ok".into())
            }
            _ => None,
        }
    }

    /// How many updates of the plain counter were written over.
    pub(crate) fn lost_plain(&self) -> u64 {
        self.plain_writes.saturating_sub(self.plain)
    }

    /// The same for those that came with a fencing number; `None` where no library gave any.
    pub(crate) fn lost_fenced(&self) -> Option<u64> {
        (self.fenced_writes > 0).then(|| self.fenced_writes.saturating_sub(self.fenced))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_write_is_lost_by_the_plain_counter_and_refused_by_the_fenced_one() {
        let mut store = Store::default();
        let read = |fence| Event::Read { fence: Some(fence) };
        let write = |fence| Event::Write { fence: Some(fence), plain: 1, fenced: Some(1) };
        assert_eq!(store.answer(&read(1)).as_deref(), Some("0 0"));
        assert_eq!(store.answer(&read(2)).as_deref(), Some("0 0"));
        store.answer(&write(2));
        store.answer(&write(1));
        assert_eq!((store.lost_plain(), store.lost_fenced()), (1, Some(0)));
        assert_eq!(store.answer(&read(1)).as_deref(), Some("1 -"));
    }
}

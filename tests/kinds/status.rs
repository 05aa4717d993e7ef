//! What is shown of locks that several can hold.

use redis_locks::LockState;
use testbed::eventually;

use crate::arena::{Arena, PATIENCE, Waiting, queued, take};

#[test]
fn status_shows_readers_and_force_ends_them_all() {
    for arena in Arena::each() {
        let first = take(arena.one.read("k"));
        let second = take(arena.other.read("k"));
        let writer = Waiting::start(arena.one.write("k"));
        eventually(PATIENCE, "one waits", || queued(&arena, "k") == 1);
        let status = arena.other.blocking_status("k").unwrap();
        assert_eq!(status.kind, redis_locks::LockKind::Read);
        let tokens: Vec<_> = status.holders.iter().map(|holder| &holder.token).collect();
        assert!(tokens.contains(&first.token()) && tokens.contains(&second.token()));
        assert!(arena.other.blocking_force_release("k", "maintenance").unwrap());
        writer.must_have_it();
        for guard in [first, second] {
            eventually(PATIENCE, "it is notified", || guard.state() == LockState::Lost);
            assert!(guard.blocking_verify().unwrap_err().to_string().contains("maintenance"));
        }
        writer.finish();
        let permit = take(arena.one.permit("p", 3));
        let status = arena.other.blocking_status("p").unwrap();
        assert_eq!(format!("{}, {}", status.kind, status.holders.len()), "permit of 3, 1");
        permit.blocking_release().unwrap();
        arena.assert_clean();
    }
}

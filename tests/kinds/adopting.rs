//! Tokens that other processes adopt, and of which kind they are.

use redis_locks::{LockRequest, Token};

use crate::arena::{Arena, take};

#[test]
fn a_token_is_adopted_only_as_what_it_holds() {
    for arena in Arena::each() {
        let (one, other) = (&arena.one, &arena.other);
        let tell = |request: LockRequest, token: &Token| {
            let error = request.blocking_adopt(token.to_string().parse().unwrap()).unwrap_err();
            assert!(error.is_lost(), "{}: {error}", arena.name);
        };
        let beside = take(other.read("k"));
        let reader = take(one.read("k")).detach();
        tell(other.write("k"), &reader);
        tell(other.mutex("k"), &reader);
        tell(other.permit("k", 3), &reader);
        beside.blocking_verify().unwrap();
        other.read("k").blocking_adopt(reader).unwrap().blocking_release().unwrap();
        beside.blocking_release().unwrap();
        let writer = take(one.write("k")).detach();
        tell(other.read("k"), &writer);
        let writer = other.write("k").blocking_adopt(writer).unwrap();
        let reader = writer.blocking_downgrade().unwrap().detach();
        tell(one.write("k"), &reader);
        one.read("k").blocking_adopt(reader).unwrap().blocking_release().unwrap();
        let permit = take(one.permit("k", 3)).detach();
        tell(other.write("k"), &permit);
        other.permit("k", 2).blocking_adopt(permit).unwrap().blocking_release().unwrap();
        arena.assert_clean();
    }
}

//! Values of one's own types, and constants, in keys.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use redis_locks::__private_0_1::{render, segment};
use redis_locks::{KeySegment, redis_lock};

use crate::support::{R, locks};

#[derive(KeySegment)]
struct OrderId(u64);

#[derive(KeySegment)]
struct Named<'a, T> {
    name: &'a T,
}

#[derive(KeySegment)]
struct Shelf {
    place: Place,
    number: u32,
    label: String,
}

#[derive(KeySegment)]
enum Place {
    North,
    r#South,
}

fn text(value: &(impl KeySegment + ?Sized)) -> String {
    render(format_args!("{}", segment(value))).map_or_else(|e| e.to_string(), |k| k.to_string())
}

#[test]
fn derived_segments_write_their_fields() {
    assert_eq!(text(&OrderId(7)), "7");
    assert_eq!(text(&Named { name: &"a:b" }), "a%3Ab");
    let shelf = |place, label: &str| Shelf { place, number: 3, label: label.into() };
    assert_eq!(text(&shelf(Place::North, "a:b")), "North:3:a%3Ab");
    assert_eq!(text(&shelf(Place::South, "c")), "South:3:c");
    assert!(text(&shelf(Place::North, "")).contains("empty"));
    let padded = render(format_args!("{:04}|{:04}", segment(&OrderId(7)), segment("x"))).unwrap();
    assert_eq!(padded.as_str(), "0007|x   ");
}

#[test]
fn segments_can_be_objects() {
    let parts: [Box<dyn KeySegment>; 3] = [Box::new(7), Box::new("a:b"), Box::new(OrderId(8))];
    assert_eq!(parts.iter().map(text).collect::<Vec<_>>(), ["7", "a%3Ab", "8"]);
}

#[test]
fn addresses_are_segments() {
    assert_eq!(text(&IpAddr::V4(Ipv4Addr::LOCALHOST)), "127.0.0.1");
    assert_eq!(text(&Ipv6Addr::LOCALHOST), "%3A%3A1");
    assert_eq!(text(&SocketAddr::from(([127, 0, 0, 1], 80))), "127.0.0.1%3A80");
}

const SEPARATED: &str = "a:b";

#[redis_lock(key = "c:{SEPARATED}:{N}:{id:03}", guard = lock)]
fn constants<const N: usize>(id: u32) -> R<String> {
    Ok(lock.key().into())
}

struct Sharded<const M: u8>;

impl<const M: u8> Sharded<M> {
    #[redis_lock(key = "s:{M:03}:{SEPARATED}", guard = lock)]
    async fn of_the_type(&self) -> R<String> {
        Ok(lock.key().into())
    }
}

#[tokio::test]
async fn m03_constants_are_values_like_any_other() -> R<()> {
    locks();
    assert_eq!(constants::<12>(3)?, "c:a%3Ab:12:003");
    assert_eq!(constants::<1>(23)?, "c:a%3Ab:1:023");
    assert_eq!(Sharded::<7>.of_the_type().await?, "s:007:a%3Ab");
    Ok(())
}

use redis_locks::KeySegment;

#[derive(KeySegment)]
struct Nothing;

#[derive(KeySegment)]
enum Shape {
    Round,
    Square(u32),
}

#[derive(KeySegment)]
union Both {
    a: u32,
    b: i32,
}

#[derive(KeySegment)]
struct Price {
    shop: u32,
    amount: f64,
}

fn main() {}

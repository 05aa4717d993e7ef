use redis_locks::{KeySegment, LockError, Locks, redis_lock, redis_lock_defaults};

type R<T> = Result<T, LockError>;

#[derive(KeySegment)]
struct Id(u64);

struct User {
    id: u64,
}

impl User {
    fn name(&self) -> &str {
        "ada"
    }
}

static TENANT: &str = "acme";

#[redis_lock(key = "order:{ordr_id}:{regoin}")]
async fn several(order_id: u64, region: &str) -> R<()> { Ok(()) }

#[redis_lock(key = "order:{oder_id}")]
fn blocking(order_id: u64) -> R<()> { Ok(()) }

#[redis_lock(key = "order:{oder_id}")]
fn future(order_id: u64) -> impl Future<Output = R<()>> { async move { Ok(()) } }

#[redis_lock(key = "order:{oder_id}", on_error = |_| 0)]
async fn handled(order_id: u64) -> u64 { order_id }

#[redis_lock(key = "user:{usr.id}")]
async fn field(user: &User) -> R<()> { Ok(()) }

#[redis_lock(key = "user:{usr.name()}")]
async fn method(user: &User) -> R<()> { Ok(()) }

#[redis_lock(key = "order:{oder_id:08}")]
async fn with_a_width(order_id: u64) -> R<()> { Ok(()) }

#[redis_lock(key = "order:{order_id:widht$}")]
async fn width(order_id: u64, width: usize) -> R<()> { Ok(()) }

#[redis_lock(key("order:{idd}", id = order_id))]
async fn name_of_the_template(order_id: u64) -> R<()> { Ok(()) }

#[redis_lock(keys = ["acct:{form}", "acct:{to}"])]
async fn list(from: u64, to: u64) -> R<()> { Ok(()) }

#[redis_lock(key = "order:{id}")]
async fn pattern(Id(idd): Id) -> R<()> { Ok(()) }

#[redis_lock(key = "size:{sise}")]
async fn generic<const size: usize>() -> R<()> { Ok(()) }

struct Jobs {
    locks: Locks,
}

#[redis_lock_defaults(prefix = "jobs:")]
impl Jobs {
    #[redis_lock(key = "{jbo}", via = self.locks)]
    async fn run(&self, job: u64) -> R<()> { Ok(()) }

    #[redis_lock(key = "{slef.locks}")]
    async fn receiver(&self) -> R<()> { Ok(()) }
}

#[redis_lock(key = "job:{type_}")]
async fn raw(r#type: u64) -> R<()> { Ok(()) }

#[redis_lock(key = "acme:{TENANT}:{_odrer}")]
async fn underscore(_order: u64) -> R<()> { Ok(()) }

fn main() {}

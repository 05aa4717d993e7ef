//! E20-E36: receivers, generics, traits and macros around the function.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use redis_locks::{LockError, redis_lock};

use crate::support::{R, is_locked, is_send, locks, tick};

struct S {
    v: Vec<u32>,
    tenant: String,
}

impl S {
    fn acme() -> Self {
        Self { v: vec![], tenant: "acme".into() }
    }

    #[redis_lock(key = "k:{n}")]
    async fn push(&mut self, n: u32) -> R<&mut u32> {
        self.v.push(n);
        Ok(self.v.last_mut().unwrap())
    }

    #[redis_lock(key = "k:{n}")]
    fn push_sync(&mut self, n: u32) -> R<&mut u32> {
        self.v.push(n);
        Ok(self.v.last_mut().unwrap())
    }

    #[redis_lock(key = "k")]
    async fn by_ref(&self) -> R<&str> {
        tick().await;
        Ok(&self.tenant)
    }

    #[redis_lock(key = "k")]
    fn by_ref_sync(&self) -> R<&str> {
        Ok(&self.tenant)
    }

    #[redis_lock(key = "k")]
    async fn owned(self) -> R<String> {
        Ok(self.tenant)
    }

    #[redis_lock(key = "k")]
    async fn owned_mut(mut self) -> R<Self> {
        self.v.clear();
        Ok(self)
    }

    #[redis_lock(key = "k")]
    fn owned_mut_sync(mut self) -> R<Self> {
        self.v.push(9);
        Ok(self)
    }

    #[redis_lock(key = "k")]
    async fn arc(self: Arc<Self>) -> R<usize> {
        Ok(self.v.len())
    }

    #[redis_lock(key = "k")]
    fn boxed(self: Box<Self>) -> R<usize> {
        Ok(self.v.len())
    }

    #[redis_lock(key = "k")]
    async fn rc(self: Rc<Self>) -> R<usize> {
        Ok(self.v.len())
    }

    #[redis_lock(key = "k")]
    async fn pinned(mut self: Pin<&mut Self>) -> R<()> {
        self.v.push(1);
        Ok(())
    }

    #[redis_lock(key = "k")]
    async fn mut_ref(mut self: &Self, other: &'static S) -> R<usize> {
        let before = self.v.len();
        self = other;
        Ok(before + self.v.len())
    }

    #[redis_lock(key("svc:{t}:{n}", t = self.tenant), guard = lock)]
    async fn e22(&self, n: u32) -> R<String> {
        Ok(lock.key().into())
    }

    #[redis_lock(key = "svc:{self.tenant}:{n}", guard = lock)]
    fn e22_sugar(&self, n: u32) -> R<String> {
        Ok(lock.key().into())
    }

    #[redis_lock(key = "svc:{self}", guard = lock)]
    fn e22_self(&self) -> R<String> {
        Ok(lock.key().into())
    }

    #[redis_lock(key = "k")]
    async fn e28(&self) -> R<usize> {
        macro_rules! len {
            () => {
                self.v.len()
            };
        }
        Ok(len!())
    }

    #[redis_lock(key = "k")]
    async fn e29<F, Fut, T>(&self, with: F) -> R<T>
    where
        F: FnOnce(&Self) -> Fut,
        Fut: Future<Output = T>,
    {
        Ok(with(self).await)
    }
}

impl redis_locks::KeySegment for S {
    fn write_segment(&self, out: &mut redis_locks::SegmentWriter<'_>) -> std::fmt::Result {
        self.tenant.write_segment(out)
    }
}

#[tokio::test]
async fn e20_self_by_reference_and_by_value() -> R<()> {
    locks();
    let mut s = S::acme();
    *s.push(1).await? += 1;
    *s.push_sync(5)? += 1;
    assert_eq!(s.v, [2, 6]);
    assert_eq!(s.by_ref().await?, "acme");
    assert_eq!(s.by_ref_sync()?, "acme");
    assert_eq!(s.owned_mut().await?.owned_mut_sync()?.v, [9]);
    assert_eq!(S::acme().owned().await?, "acme");
    Ok(())
}

#[tokio::test]
async fn e21_self_in_smart_pointers() -> R<()> {
    locks();
    assert_eq!(is_send(Arc::new(S::acme()).arc()).await?, 0);
    assert_eq!(Box::new(S::acme()).boxed()?, 0);
    assert_eq!(Rc::new(S::acme()).rc().await?, 0);
    let mut s = S::acme();
    Pin::new(&mut s).pinned().await?;
    static OTHER: S = S { v: Vec::new(), tenant: String::new() };
    assert_eq!(s.mut_ref(&OTHER).await?, 1);
    Ok(())
}

#[tokio::test]
async fn e22_self_in_the_key() -> R<()> {
    locks();
    let s = S { v: vec![], tenant: "a:b".into() };
    assert_eq!(s.e22(1).await?, "svc:a%3Ab:1");
    assert_eq!(s.e22_sugar(1)?, "svc:a%3Ab:1");
    assert_eq!(s.e22_self()?, "svc:a%3Ab", "a value is a value, also when it is self");
    Ok(())
}

struct Sized<const N: usize>;

impl<const N: usize> Sized<N> {
    const LABEL: &'static str = "label";

    #[redis_lock(key = "k:{N}", guard = lock)]
    async fn e24() -> R<(Self, String)> {
        Ok((Self, lock.key().into()))
    }

    #[redis_lock(key("k:{}", Self::LABEL), guard = lock)]
    fn e24_associated() -> R<String> {
        Ok(lock.key().into())
    }
}

#[tokio::test]
async fn e24_self_type_and_const_generics() -> R<()> {
    locks();
    assert_eq!(Sized::<3>::e24().await?.1, "k:3");
    assert_eq!(Sized::<3>::e24_associated()?, "k:label");
    Ok(())
}

macro_rules! e26 {
    ($k:literal $i:item) => {
        #[redis_lock(key = $k)]
        $i
    };
}

e26! { "e26:{n}" async fn e26(n: u32) -> R<bool> { Ok(n == 1 && is_locked("e26:1")) } }

#[tokio::test]
async fn e26_item_and_literal_through_macro_rules() -> R<()> {
    locks();
    assert!(e26(1).await?);
    Ok(())
}

macro_rules! e27 {
    ($v:vis $f:ident $t:ty, $p:pat, $a:ty, $b:block) => {
        #[redis_lock(key = "k")]
        $v async fn $f($p: $a) -> $t $b
    };
}

e27!(pub(crate) e27 R<u32>, (a, _), (u32, u32), {
    Ok(a)
});

#[tokio::test]
async fn e27_fragments_through_macro_rules() -> R<()> {
    locks();
    assert_eq!(e27((1, 2)).await?, 1);
    Ok(())
}

#[tokio::test]
async fn e28_local_macro_that_mentions_self() -> R<()> {
    locks();
    assert_eq!(S::acme().e28().await?, 0);
    Ok(())
}

#[tokio::test]
async fn e29_generics_with_where_clauses() -> R<()> {
    locks();
    assert_eq!(S::acme().e29(|s| std::future::ready(s.v.len())).await?, 0);
    Ok(())
}

struct Wrapper<T>(T);

impl<T: Clone + Send + Sync> Wrapper<T> {
    #[redis_lock(key = "k")]
    async fn e31(&self) -> R<T> {
        Ok(self.0.clone())
    }
}

#[tokio::test]
async fn e31_generic_impl_block() -> R<()> {
    locks();
    assert_eq!(is_send(Wrapper(5).e31()).await?, 5);
    Ok(())
}

trait Default32: Sync {
    #[redis_lock(key = "e32:{n}")]
    fn a(&self, n: u32) -> R<bool> {
        Ok(n == 1 && is_locked("e32:1"))
    }

    #[redis_lock(key = "e32:{n}")]
    fn c(&self, n: u32) -> impl Future<Output = R<bool>> + Send {
        async move { Ok(n == 1 && is_locked("e32:1")) }
    }
}

impl Default32 for S {}

#[tokio::test]
async fn e32_trait_method_with_a_default_body() -> R<()> {
    locks();
    assert!(S::acme().a(1)?);
    assert!(S::acme().c(1).await?);
    Ok(())
}

trait Declared {
    fn f(&self, n: u32) -> impl Future<Output = R<u32>> + Send;
}

impl Declared for S {
    #[redis_lock(key = "k:{n}")]
    async fn f(&self, n: u32) -> R<u32> {
        tick().await;
        Ok(n)
    }
}

#[tokio::test]
async fn e34_async_fn_for_a_declared_future() -> R<()> {
    locks();
    assert_eq!(is_send(S::acme().f(1)).await?, 1);
    Ok(())
}

#[async_trait::async_trait]
trait Service {
    async fn get(&self, n: u32) -> R<bool>;
    async fn take(
        self: Box<Self>,
        s: String,
    ) -> Result<String, Box<dyn std::error::Error + Send + Sync>>;
    #[redis_lock(key = "e35:{n}")]
    async fn preset(&self, n: u32) -> R<bool> {
        Ok(n == 1 && is_locked("e35:1"))
    }
}

#[async_trait::async_trait]
impl Service for S {
    #[redis_lock(key("e35:{t}:{n}", t = self.tenant))]
    async fn get(&self, n: u32) -> R<bool> {
        if n == 0 {
            return Ok(false);
        }
        tick().await;
        Ok(is_locked("e35:acme:1"))
    }

    #[redis_lock(key = "e35:{s}")]
    async fn take(
        self: Box<Self>,
        s: String,
    ) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        let n: u32 = s.parse()?;
        Ok(format!("{}{n}", self.tenant))
    }
}

#[tokio::test]
async fn e35_async_trait() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    locks();
    assert!(is_send(S::acme().get(1)).await?);
    assert!(!S::acme().get(0).await?);
    assert!(S::acme().preset(1).await?);
    assert_eq!(Box::new(S::acme()).take("7".into()).await?, "acme7");
    assert!(Box::new(S::acme()).take("x".into()).await.is_err());
    assert!(!is_locked("e35:acme:1"));
    Ok(())
}

#[redis_lock(key = "e36:{n}")]
fn e36(n: u32) -> impl Future<Output = R<bool>> + Send {
    async move { Ok(n == 1 && is_locked("e36:1")) }
}

#[redis_lock(key = "e36:{n}")]
fn e36_pinned(n: u32) -> Pin<Box<dyn Future<Output = R<bool>> + Send>> {
    let one = n;
    if n > 5 {
        return Box::pin(async { Ok(false) });
    }
    Box::pin(async move {
        tick().await;
        Ok(one == 1 && is_locked("e36:1"))
    })
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[redis_lock(key = "e36:{this.tenant}")]
fn e36_aliased<'a>(this: &'a S) -> BoxFuture<'a, Result<bool, LockError>>
where
    S: 'a,
{
    Box::pin(async move { Ok(this.v.is_empty()) })
}

#[tokio::test]
async fn e36_hand_written_futures() -> R<()> {
    locks();
    assert!(is_send(e36(1)).await?);
    assert!(is_send(e36_pinned(1)).await?);
    assert!(is_send(e36_aliased(&S::acme())).await?);
    assert!(!is_locked("e36:1"));
    Ok(())
}

/// Functions whose paths have a sign that ends the name of a token, and are longer than a label may be.
mod r#async {
    pub(super) mod this_module_has_a_name_that_tells_all_about_its_functions {
        pub(crate) mod and_this_one_as_well_though_it_stands_in_another_module {
            use redis_locks::{Token, redis_lock};

            use crate::support::R;

            #[redis_lock(key = "long", ttl = "never", wait = "none", guard = lock)]
            pub(crate) fn and_so_has_this_function_that_says_what_is_done() -> R<Token> {
                Ok(lock.token().clone())
            }
        }
    }
}

#[test]
fn the_path_of_a_function_fits_into_a_token() {
    use r#async::this_module_has_a_name_that_tells_all_about_its_functions as outer;
    use outer::and_this_one_as_well_though_it_stands_in_another_module as inner;
    locks();
    let token = inner::and_so_has_this_function_that_says_what_is_done().unwrap();
    let text = token.to_string();
    assert_eq!(text.parse(), Ok(token), "{text}");
    assert!(text.ends_with("::and_so_has_this_function_that_says_what_is_done"), "{text}");
    let (_, path) = text.split_once("%20").unwrap();
    assert!(path.len() <= 128, "{path}");
}

//! A user and a password that may expire.

use std::fmt;
use std::time::SystemTime;

/// A user and a password, which a provider gives to
/// [`LocksBuilder::credentials`](crate::LocksBuilder::credentials). An empty user is the default one.
///
/// Its `Debug` shows neither.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use redis_locks::Credentials;
/// let end = SystemTime::now() + Duration::from_secs(900);
/// let credentials = Credentials::new("app", "s3cret").expires_at(end);
/// assert!(!format!("{credentials:?}").contains("s3cret"));
/// ```
#[derive(Clone, PartialEq, Eq)]
#[must_use = "credentials do nothing until a provider returns them"]
pub struct Credentials {
    pub(crate) user: String,
    pub(crate) password: String,
    expires_at: Option<SystemTime>,
    renew_after: Option<SystemTime>,
}

impl Credentials {
    /// Credentials that don't expire.
    ///
    /// ```
    /// let credentials = redis_locks::Credentials::new("app", "s3cret");
    /// # let _ = credentials;
    /// ```
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        let (user, password) = (user.into(), password.into());
        Self { user, password, expires_at: None, renew_after: None }
    }

    /// When the server stops accepting them. The provider is called again halfway to that time, unless
    /// [`renew_after`](Self::renew_after) sets another time.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// let token = redis_locks::Credentials::new("app", "signed");
    /// let token = token.expires_at(SystemTime::now() + Duration::from_secs(900));
    /// # let _ = token;
    /// ```
    pub fn expires_at(mut self, time: SystemTime) -> Self {
        self.expires_at = Some(time);
        self
    }

    /// When to call the provider again.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// let (token, now) = (redis_locks::Credentials::new("app", "signed"), SystemTime::now());
    /// let token = token.expires_at(now + Duration::from_secs(900));
    /// let token = token.renew_after(now + Duration::from_secs(600));
    /// # let _ = token;
    /// ```
    pub fn renew_after(mut self, time: SystemTime) -> Self {
        self.renew_after = Some(time);
        self
    }

    pub(crate) fn is_expired(&self, now: SystemTime) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }

    pub(crate) fn is_same_login(&self, other: &Self) -> bool {
        (&self.user, &self.password) == (&other.user, &other.password)
    }

    /// When to ask for others, if they were given now.
    pub(crate) fn renewal(&self, now: SystemTime) -> Option<SystemTime> {
        let half = |end: SystemTime| now + end.duration_since(now).unwrap_or_default() / 2;
        let in_time = |at: &SystemTime| self.expires_at.is_none_or(|end| *at < end);
        self.renew_after.filter(in_time).or_else(|| self.expires_at.map(half))
    }

    /// The text without the password, should it have got there.
    pub(crate) fn hidden_in(&self, text: &str) -> String {
        if self.password.is_empty() { text.into() } else { text.replace(&self.password, "***") }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("expires_at", &self.expires_at)
            .field("renew_after", &self.renew_after)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn they_are_renewed_after_half_of_their_time_or_when_the_provider_says() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let plain = Credentials::new("u", "p");
        assert_eq!(plain.renewal(now), None);
        assert_eq!(plain.clone().expires_at(at(1_100)).renewal(now), Some(at(1_050)));
        assert_eq!(plain.clone().expires_at(at(900)).renewal(now), Some(now));
        let both = plain.expires_at(at(1_100));
        assert_eq!(both.clone().renew_after(at(1_090)).renewal(now), Some(at(1_090)));
        assert_eq!(both.renew_after(at(1_200)).renewal(now), Some(at(1_050)), "that is too late");
    }
}

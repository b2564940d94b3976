//! Who may read: whoever has used a link that this process printed.
//!
//! A link works once. It brings a cookie, which no script can read, and a key, which the page keeps for its own origin and shows with each
//! request. Neither is enough alone: browsers send a cookie of 127.0.0.1 to every port there, and so to servers of others. Only hashes are kept.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::time::Instant;

/// How long a link that nobody has used works.
const LINK: Duration = Duration::from_secs(15 * 60);

/// How long a browser stays in: longer than a night on call.
const VISIT: Duration = Duration::from_secs(16 * 60 * 60);

/// How many browsers may be in; who comes then pushes out who came first.
const VISITORS: usize = 16;

/// Links and visitors of one server.
#[derive(Debug, Default)]
pub(super) struct Access {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    link: Option<(Hash, Instant)>,
    visitors: Vec<Visitor>,
}

#[derive(Debug)]
struct Visitor {
    cookie: Hash,
    key: Hash,
    until: Instant,
}

type Hash = [u8; 32];

/// What a browser gets for a link.
pub(super) struct Ticket {
    pub(super) cookie: String,
    pub(super) key: String,
}

impl Access {
    /// A token for a new link, which is now the only one.
    pub(super) fn new_link(&self) -> Result<String, getrandom::Error> {
        let token = random()?;
        self.lock().link = Some((hash(&token), Instant::now() + LINK));
        Ok(token)
    }

    /// Takes a token for a ticket. `None` if it is not that of the last link, or was taken before.
    pub(super) fn exchange(&self, token: &str) -> Result<Option<Ticket>, getrandom::Error> {
        let ticket = Ticket { cookie: random()?, key: random()? };
        let now = Instant::now();
        let mut state = self.lock();
        let works = state.link.is_some_and(|(link, until)| now < until && same(&link, token));
        if !works {
            return Ok(None);
        }
        state.link = None;
        state.visitors.retain(|visitor| now < visitor.until);
        if state.visitors.len() >= VISITORS {
            state.visitors.remove(0);
        }
        state.visitors.push(Visitor {
            cookie: hash(&ticket.cookie),
            key: hash(&ticket.key),
            until: now + VISIT,
        });
        Ok(Some(ticket))
    }

    /// Whether a request with these is a visitor's. Several cookies may have our name: others may have set theirs.
    pub(super) fn admits<'a>(&self, cookies: impl Iterator<Item = &'a str>, key: &str) -> bool {
        let now = Instant::now();
        let state = self.lock();
        let mut cookies = cookies.take(8);
        cookies.any(|cookie| {
            let known = |visitor: &&Visitor| {
                now < visitor.until && same(&visitor.cookie, cookie) && same(&visitor.key, key)
            };
            state.visitors.iter().find(known).is_some()
        })
    }

    // A panic leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// 256 random bits, as 43 letters that need no escape in an address.
fn random() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

fn hash(text: &str) -> Hash {
    Sha256::digest(text.as_bytes()).into()
}

fn same(known: &Hash, text: &str) -> bool {
    known.ct_eq(&hash(text)).into()
}

#[cfg(test)]
mod tests {
    use std::iter::once;

    use super::*;

    fn enter(access: &Access) -> Ticket {
        let token = access.new_link().unwrap();
        access.exchange(&token).unwrap().unwrap()
    }

    #[tokio::test]
    async fn a_link_works_once_and_only_the_last_one() {
        let access = Access::default();
        let first = access.new_link().unwrap();
        let second = access.new_link().unwrap();
        assert!(access.exchange(&first).unwrap().is_none());
        assert!(access.exchange(&second).unwrap().is_some());
        assert!(access.exchange(&second).unwrap().is_none());
        assert!(access.exchange("").unwrap().is_none());
    }

    #[tokio::test]
    async fn cookie_and_key_open_only_together() {
        let access = Access::default();
        let (one, other) = (enter(&access), enter(&access));
        assert!(access.admits(once(one.cookie.as_str()), &one.key));
        assert!(access.admits(["of somebody else", &other.cookie].into_iter(), &other.key));
        assert!(!access.admits(once(one.cookie.as_str()), &other.key));
        assert!(!access.admits(once(one.cookie.as_str()), ""));
        assert!(!access.admits(std::iter::empty(), &one.key));
    }

    #[tokio::test(start_paused = true)]
    async fn links_and_visits_end() {
        let access = Access::default();
        let token = access.new_link().unwrap();
        tokio::time::advance(LINK).await;
        assert!(access.exchange(&token).unwrap().is_none());
        let ticket = enter(&access);
        tokio::time::advance(VISIT).await;
        assert!(!access.admits(once(ticket.cookie.as_str()), &ticket.key));
    }

    #[tokio::test]
    async fn the_oldest_visitor_makes_room() {
        let access = Access::default();
        let tickets: Vec<_> = (0..=VISITORS).map(|_| enter(&access)).collect();
        assert!(!access.admits(once(tickets[0].cookie.as_str()), &tickets[0].key));
        assert!(access.admits(once(tickets[1].cookie.as_str()), &tickets[1].key));
    }
}

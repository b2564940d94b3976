//! Tokens: what they stand for, for a minute and for one client.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use tokio::time::Instant;

/// Things that wait for the holders of their tokens.
pub(super) struct Tokens<T> {
    parked: Mutex<HashMap<String, (Instant, T)>>,
    most: usize,
    life: Duration,
}

/// Why nothing was parked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParkError {
    /// Clients ask and do not come.
    #[error("{most} streaming requests wait for their clients; try again in a minute")]
    TooMany {
        /// How many may wait.
        most: usize,
    },
    /// A token must not be guessed.
    #[error("the kernel gave no random bytes")]
    Random(#[source] getrandom::Error),
}

impl<T> Tokens<T> {
    /// For at most `most` at once, each for its `life`.
    pub(super) fn new(most: usize, life: Duration) -> Self {
        Self { parked: Mutex::default(), most, life }
    }

    /// Parks `what` under a new token.
    pub(super) fn park(&self, what: T, now: Instant) -> Result<String, ParkError> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(ParkError::Random)?;
        let token = URL_SAFE_NO_PAD.encode(bytes);
        let mut parked = self.lock();
        if parked.len() >= self.most {
            parked.retain(|_, (expires, _)| *expires > now);
        }
        if parked.len() >= self.most {
            return Err(ParkError::TooMany { most: self.most });
        }
        parked.insert(token.clone(), (now + self.life, what));
        Ok(token)
    }

    /// What the token stands for, if it does; it does not any more after this.
    pub(super) fn take(&self, token: &str, now: Instant) -> Option<T> {
        let (expires, what) = self.lock().remove(token)?;
        (expires > now).then_some(what)
    }

    /// Drops what nobody took in time.
    pub(super) fn forget_expired(&self, now: Instant) {
        self.lock().retain(|_, (expires, _)| *expires > now);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Instant, T)>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const LIFE: Duration = Duration::from_secs(60);

    #[test]
    fn a_token_is_good_once() {
        let (tokens, now) = (Tokens::new(10, LIFE), Instant::now());
        let token = tokens.park("it", now).unwrap();
        assert_eq!(tokens.take("another", now), None);
        assert_eq!(tokens.take(&token, now), Some("it"));
        assert_eq!(tokens.take(&token, now), None);
    }

    #[test]
    fn a_token_is_good_for_its_life() {
        let (tokens, now) = (Tokens::new(10, LIFE), Instant::now());
        let token = tokens.park("it", now).unwrap();
        assert_eq!(tokens.take(&token, now + LIFE), None);
        let token = tokens.park("it", now).unwrap();
        assert_eq!(tokens.take(&token, now + LIFE - Duration::from_millis(1)), Some("it"));
    }

    #[test]
    fn there_are_only_so_many_and_expired_ones_make_room() {
        let (tokens, now) = (Tokens::new(1_000, LIFE), Instant::now());
        let parked: HashSet<_> = (0..1_000).map(|n| tokens.park(n, now).unwrap()).collect();
        assert_eq!(parked.len(), 1_000);
        assert!(matches!(tokens.park(1, now), Err(ParkError::TooMany { most: 1_000 })));
        tokens.park(1, now + LIFE).unwrap();
        assert_eq!(tokens.lock().len(), 1);
        tokens.forget_expired(now + LIFE * 2);
        assert_eq!(tokens.lock().len(), 0);
    }

    #[test]
    fn a_token_fits_into_a_path() {
        let tokens = Tokens::new(100, LIFE);
        for _ in 0..100 {
            let token = tokens.park((), Instant::now()).unwrap();
            assert_eq!(token.len(), 22);
            let is_good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            assert!(token.chars().all(is_good), "{token}");
        }
    }
}

//! A thing that one uses after the other, and for which nobody waits without a limit.

use std::{
    ops::{Deref, DerefMut},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// As a mutex, which the standard library waits for as long as it takes.
#[derive(Debug)]
pub(super) struct Turn<T> {
    /// `None` while somebody has it.
    thing: Mutex<Option<T>>,
    given_back: Condvar,
}

/// Whose turn it is; given back when this is dropped, also by a panic.
#[derive(Debug)]
pub(super) struct Taken<'a, T> {
    from: &'a Turn<T>,
    /// Until it is given back.
    thing: Option<T>,
}

impl<T> Turn<T> {
    pub(super) fn new(thing: T) -> Self {
        Self { thing: Mutex::new(Some(thing)), given_back: Condvar::new() }
    }

    /// `None` if others have it for longer than `limit`.
    pub(super) fn take(&self, limit: Duration) -> Option<impl DerefMut<Target = T>> {
        let waited = self.given_back.wait_timeout_while(self.lock(), limit, |it| it.is_none());
        let thing = waited.unwrap_or_else(PoisonError::into_inner).0.take()?;
        Some(Taken { from: self, thing: Some(thing) })
    }

    /// Nobody else can have it.
    pub(super) fn get_mut(&mut self) -> Option<&mut T> {
        self.thing.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut()
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.thing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.thing.as_ref().expect("it is given back only when this is dropped")
    }
}

impl<T> DerefMut for Taken<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.thing.as_mut().expect("it is given back only when this is dropped")
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        *self.from.lock() = self.thing.take();
        self.from.given_back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::{panic, sync::Arc, thread};

    use super::*;

    #[test]
    fn one_has_it_after_the_other_and_nobody_waits_longer_than_the_limit() {
        let turn = Arc::new(Turn::new(1));
        let mut first = turn.take(Duration::ZERO).unwrap();
        assert!(turn.take(Duration::from_millis(1)).is_none());
        *first += 1;
        let other = Arc::clone(&turn);
        let other = thread::spawn(move || *other.take(Duration::from_secs(600)).unwrap());
        drop(first);
        assert_eq!(other.join().unwrap(), 2);
    }

    #[test]
    fn it_is_given_back_by_who_panics() {
        let mut turn = Turn::new(1);
        let user = panic::AssertUnwindSafe(&turn);
        let panicked = panic::catch_unwind(|| {
            let _taken = user.take(Duration::ZERO).unwrap();
            panic!("of the test");
        });
        assert!(panicked.is_err());
        assert_eq!(turn.take(Duration::ZERO).as_deref(), Some(&1));
        assert_eq!(turn.get_mut(), Some(&mut 1));
    }
}

//! Connections without requests. They stay open as long as no other connection needs their place; then the one that has been silent longest
//! is closed, so that a flood of silent connections does not keep out clients with requests.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::sync::oneshot;

/// All who are silent.
#[derive(Default)]
pub(crate) struct Silence {
    silent: Mutex<Silent>,
}

#[derive(Default)]
struct Silent {
    last: u64,
    /// By when they fell silent.
    ends: BTreeMap<u64, oneshot::Sender<()>>,
}

/// One who is silent; no longer when this is dropped.
struct Place<'s> {
    silence: &'s Silence,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.silence.silent().ends.remove(&self.number);
    }
}

impl Silence {
    /// Waits for the first bytes; nothing if another connection took the place meanwhile.
    pub async fn until<T>(&self, said: impl Future<Output = T>) -> Option<T> {
        let (end, ended) = oneshot::channel();
        let place = self.enter(end);
        tokio::select! {
            biased;
            said = said => {
                drop(place);
                Some(said)
            }
            _ = ended => None,
        }
    }

    /// The same with a limit: beyond it, the connection that has been silent longest is closed.
    pub async fn until_among<T>(&self, max: usize, said: impl Future<Output = T>) -> Option<T> {
        if self.silent().ends.len() >= max {
            self.make_room();
        }
        self.until(said).await
    }

    /// Ends the connection that has been silent longest; returns whether there was one.
    pub fn make_room(&self) -> bool {
        let mut silent = self.silent();
        while let Some((_, end)) = silent.ends.pop_first() {
            if end.send(()).is_ok() {
                return true;
            }
        }
        false
    }

    /// How many are silent.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.silent().ends.len()
    }

    fn enter(&self, end: oneshot::Sender<()>) -> Place<'_> {
        let mut silent = self.silent();
        silent.last += 1;
        let number = silent.last;
        silent.ends.insert(number, end);
        Place { silence: self, number }
    }

    fn silent(&self) -> MutexGuard<'_, Silent> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Connections whose caller is unknown: neither the owner nor the holder of a capability. Their number is limited. At the limit, a new one
//! takes the place of the one that has been silent longest, so that silent connections do not keep other clients out.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use tokio::sync::oneshot;

/// So many connections may be open beyond the limit, while silent ones that make room for them close.
const ROOM_MAKING: usize = 128;

/// All of them on one server.
pub(crate) struct Unknowns {
    max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: usize,
    last: u64,
    /// The silent ones, by when they were last heard of.
    silent: BTreeMap<u64, oneshot::Sender<()>>,
}

impl State {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Ends the connection that has been silent longest; returns whether there was one.
    fn make_room(&mut self) -> bool {
        while let Some((_, end)) = self.silent.pop_first() {
            if end.send(()).is_ok() {
                return true;
            }
        }
        false
    }
}

/// One of them, counted until its caller is known or it is gone.
pub(crate) struct Unknown {
    of: Arc<Unknowns>,
    is_known: AtomicBool,
    /// Its number among the silent; 0 while it is none of them. It changes while the state is locked.
    number: AtomicU64,
}

impl Unknowns {
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, state: Mutex::default() })
    }

    pub fn max(&self) -> usize {
        self.max
    }

    /// One more; `None` if there are as many as may be, and none of them is silent.
    pub fn enter(self: &Arc<Self>) -> Option<Arc<Unknown>> {
        let mut state = self.state();
        if state.open >= self.max && (state.open >= self.max + ROOM_MAKING || !state.make_room()) {
            return None;
        }
        state.open += 1;
        Some(Arc::new(Unknown { of: self.clone(), is_known: false.into(), number: 0.into() }))
    }

    /// How many are silent.
    #[cfg(test)]
    pub fn silent(&self) -> usize {
        self.state().silent.len()
    }

    /// How many there are.
    #[cfg(test)]
    pub fn open(&self) -> usize {
        self.state().open
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a connection from the silent.
struct Silent<'u>(&'u Unknown);

impl Drop for Silent<'_> {
    fn drop(&mut self) {
        self.0.speaks(&mut self.0.of.state());
    }
}

impl Unknown {
    /// Waits until something is said; `None` if the connection has to make room for another meanwhile, which cannot happen once its caller
    /// is known.
    async fn until<T>(&self, said: impl Future<Output = T>) -> Option<T> {
        let (end, mut ended) = oneshot::channel();
        {
            let mut state = self.of.state();
            if !self.is_known.load(Ordering::Relaxed) {
                let number = state.next();
                state.silent.insert(number, end);
                self.number.store(number, Ordering::Relaxed);
            }
        }
        let _silent = Silent(self);
        let mut said = pin!(said);
        tokio::select! {
            biased;
            said = &mut said => return Some(said),
            // It is no longer ended once its caller is known.
            Ok(()) = &mut ended => {}
        }
        // It may have shown a capability after it was chosen to make room.
        if self.is_known.load(Ordering::Relaxed) { Some(said.await) } else { None }
    }

    /// Something came: others have been silent for longer.
    pub fn is_heard(&self) {
        let mut state = self.of.state();
        if let Some(end) = state.silent.remove(&self.number.load(Ordering::Relaxed)) {
            let number = state.next();
            state.silent.insert(number, end);
            self.number.store(number, Ordering::Relaxed);
        }
    }

    fn speaks(&self, state: &mut State) {
        state.silent.remove(&self.number.swap(0, Ordering::Relaxed));
    }

    /// Its caller is known.
    pub fn leave(&self) {
        let mut state = self.of.state();
        if !self.is_known.swap(true, Ordering::Relaxed) {
            state.open -= 1;
            self.speaks(&mut state);
        }
    }
}

impl Drop for Unknown {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Waits until something is said over a connection; `None` if it has to make room for another while its caller is not known.
pub(crate) async fn unless_room_is_needed<T>(
    unknown: Option<Arc<Unknown>>,
    said: impl Future<Output = T>,
) -> Option<T> {
    let said = pin!(said);
    match unknown {
        Some(unknown) => unknown.until(said).await,
        None => Some(said.await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::future::{pending, ready};

    #[test]
    fn the_one_that_has_been_silent_longest_makes_room_and_known_ones_do_not() {
        let unknowns = Unknowns::new(3);
        let [first, second, third] = std::array::from_fn(|_| unknowns.enter().unwrap());
        let waits = |unknown: &Arc<Unknown>| Box::pin(unless_room_is_needed(Some(unknown.clone()), pending::<()>()));
        assert!(unknowns.enter().is_none(), "all of them are busy");
        let (mut of_first, mut of_second, mut of_third) = (waits(&first), waits(&second), waits(&third));
        for waiting in [&mut of_first, &mut of_second, &mut of_third] {
            assert_eq!(waiting.now_or_never(), None);
        }
        first.is_heard();
        third.leave();
        assert_eq!(unknowns.open(), 2);
        let _fourth = unknowns.enter().unwrap();
        assert_eq!((&mut of_second).now_or_never(), None, "there was room");
        let fifth = unknowns.enter().unwrap();
        assert_eq!((&mut of_second).now_or_never(), Some(None), "it has been silent longest");
        assert_eq!((&mut of_first).now_or_never(), None);
        drop((of_second, second));
        let sixth = unknowns.enter().unwrap();
        assert_eq!((&mut of_first).now_or_never(), Some(None));
        assert_eq!((&mut of_third).now_or_never(), None, "it is known");
        drop((of_first, first));
        assert!(unknowns.enter().is_none(), "nobody is silent");
        let said = unless_room_is_needed(Some(fifth.clone()), ready(7)).now_or_never();
        assert_eq!(said, Some(Some(7)));
        assert!(unknowns.enter().is_none(), "it has spoken");
        drop((fifth, sixth));
        assert_eq!(unknowns.open(), 1);
    }

    #[test]
    fn one_that_becomes_known_after_it_was_chosen_stays() {
        let unknowns = Unknowns::new(1);
        let one = unknowns.enter().unwrap();
        let mut waiting = Box::pin(unless_room_is_needed(Some(one.clone()), pending::<()>()));
        assert_eq!((&mut waiting).now_or_never(), None);
        let _other = unknowns.enter().unwrap();
        one.leave();
        assert_eq!((&mut waiting).now_or_never(), None);
    }

    #[test]
    fn those_that_are_closing_may_be_beyond_the_limit_by_some() {
        let unknowns = Unknowns::new(2);
        let mut kept = Vec::new();
        let mut more = || {
            let unknown = unknowns.enter()?;
            let mut waiting = Box::pin(unless_room_is_needed(Some(unknown), pending::<()>()));
            assert_eq!((&mut waiting).now_or_never(), None);
            kept.push(waiting);
            Some(())
        };
        assert_eq!((0..1000).map_while(|_| more()).count(), 2 + ROOM_MAKING);
    }
}

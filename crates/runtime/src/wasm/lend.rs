//! Lends a call, and the observer of its batch, to a store.
//!
//! A `Store<T>` wants a `T: 'static`, but a call borrows from its batch. So the store gets a [`Lent`], which forgets the
//! lifetimes and works only until [`lend`] takes the call back.

use crate::{Call, HostCalls, Invocation, Progress};
use std::{cell::Cell, ptr::NonNull, rc::Rc};

/// The data that is lent.
struct Loan<'a, 'b> {
    call: &'a mut Call<'b>,
    progress: &'a mut dyn Progress,
}

type Slot = Cell<Option<NonNull<Loan<'static, 'static>>>>;

/// A call while it is lent. Neither `Send` nor `Clone`: there is one user, on the lender's thread.
pub(super) struct Lent(Rc<Slot>);

/// Runs `with` with the loan of `call` and `progress`, which ends when `with` returns or unwinds.
pub(super) fn lend<R>(call: &mut Call<'_>, progress: &mut dyn Progress, with: impl FnOnce(Lent) -> R) -> R {
    struct TakeBack(Rc<Slot>);
    impl Drop for TakeBack {
        fn drop(&mut self) {
            self.0.set(None);
        }
    }
    let mut loan = Loan { call, progress };
    let lender = TakeBack(Rc::new(Cell::new(Some(NonNull::from(&mut loan).cast()))));
    with(Lent(Rc::clone(&lender.0)))
}

impl Lent {
    /// The record that causes the run.
    pub(super) fn invocation(&self) -> Invocation<'_> {
        let loan = self.0.get().expect("the call is still lent");
        // SAFETY: the pointer is that of a `Loan` which `lend` holds until it clears the slot. We are its only user
        // and on its thread. What is copied out lives no longer than `self` is borrowed, that is within the loan.
        unsafe { loan.as_ref() }.call.invocation
    }

    /// Answers the function's calls.
    pub(super) fn host(&mut self) -> &mut dyn HostCalls {
        let mut loan = self.0.get().expect("the call is still lent");
        // SAFETY: as above; `&mut self` makes the reference unique. It leads to the host only, so that nothing with a
        // shorter life can be put into the call.
        unsafe { &mut *loan.as_mut().call.host }
    }

    /// The observer of the batch.
    pub(super) fn progress(&mut self) -> &mut dyn Progress {
        let mut loan = self.0.get().expect("the call is still lent");
        // SAFETY: as in `host`.
        unsafe { &mut *loan.as_mut().progress }
    }
}

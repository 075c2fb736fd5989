//! Lends what is run, and the observer of its batch, to a store.
//!
//! A `Store<T>` wants a `T: 'static`, but a run borrows from its batch. So the store gets a [`Lent`], which forgets the
//! lifetimes and works only until [`lend`] takes it back.

use crate::{
    Invocation, LogCalls, Watch,
    step::{Host, StepAnswers},
};
use std::{cell::Cell, ptr::NonNull, rc::Rc};

/// What is run: the record, and what answers its calls.
pub(super) struct Work<'a> {
    pub(super) invocation: Invocation<'a>,
    pub(super) host: &'a mut dyn Host,
}

/// The data that is lent.
struct Loan<'a> {
    work: Work<'a>,
    watch: &'a mut dyn Watch,
}

type Slot = Cell<Option<NonNull<Loan<'static>>>>;

/// What is run while it is lent. Neither `Send` nor `Clone`: there is one user, on the lender's thread.
pub(super) struct Lent(Rc<Slot>);

/// Runs `with` with the loan of `work` and `watch`, which ends when `with` returns or unwinds.
pub(super) fn lend<'a, R>(work: Work<'a>, watch: &'a mut dyn Watch, with: impl FnOnce(Lent) -> R) -> R {
    struct TakeBack(Rc<Slot>);
    impl Drop for TakeBack {
        fn drop(&mut self) {
            self.0.set(None);
        }
    }
    let mut loan = Loan { work, watch };
    let lender = TakeBack(Rc::new(Cell::new(Some(NonNull::from(&mut loan).cast()))));
    with(Lent(Rc::clone(&lender.0)))
}

impl Lent {
    /// The record that causes the run.
    pub(super) fn invocation(&self) -> Invocation<'_> {
        let loan = self.0.get().expect("the run is still lent");
        // SAFETY: the pointer is that of a `Loan` which `lend` holds until it clears the slot. We are its only user
        // and on its thread. What is copied out lives no longer than `self` is borrowed, that is within the loan.
        unsafe { loan.as_ref() }.work.invocation
    }

    /// Answers the function's calls.
    pub(super) fn logs(&mut self) -> &mut dyn LogCalls {
        let mut loan = self.0.get().expect("the run is still lent");
        // SAFETY: as above; `&mut self` makes the reference unique. It leads to the host only, so that nothing with a
        // shorter life can be put into the loan.
        unsafe { loan.as_mut() }.work.host.logs()
    }

    /// The step, if it is one.
    pub(super) fn step(&mut self) -> Option<&mut dyn StepAnswers> {
        let mut loan = self.0.get().expect("the run is still lent");
        // SAFETY: as in `logs`.
        unsafe { loan.as_mut() }.work.host.step()
    }

    /// The observer of the run.
    pub(super) fn watch(&mut self) -> &mut dyn Watch {
        let mut loan = self.0.get().expect("the run is still lent");
        // SAFETY: as in `logs`.
        unsafe { &mut *loan.as_mut().watch }
    }
}

//! Lends a call to a store.
//!
//! A `Store<T>` wants a `T: 'static`, but a call borrows from its batch. The loan is confined to [`lend`]: the store that
//! holds it is made and dropped inside.

use crate::Call;
use std::{marker::PhantomData, ptr::NonNull};

/// A call, borrowed for longer than the compiler can see.
pub(super) struct Lent {
    call: NonNull<Call<'static>>,
    /// Neither `Send` nor `Sync`: the call belongs to the thread that runs it.
    _here: PhantomData<*mut ()>,
}

/// Runs `with` with the loan of `call`; `R: 'static` keeps the loan from coming out.
///
/// `with` gets the loan by reference, so it cannot hide it in something that outlives the call either.
pub(super) fn lend<R: 'static>(call: &mut Call<'_>, with: impl FnOnce(Lent) -> R) -> R {
    // The cast only forgets the lifetimes; `Lent` hands out references no longer than itself.
    with(Lent { call: NonNull::from(call).cast(), _here: PhantomData })
}

impl Lent {
    pub(super) fn call(&mut self) -> &mut Call<'_> {
        // SAFETY: the pointer came from a `&mut Call` that `lend` holds borrowed until `with` returns; the loan is owned
        // by a store that is a local variable of `with`, and no second loan of the same call exists.
        // The lifetime inside `Call` is shortened back to the borrow's, which is within the original one.
        unsafe { std::mem::transmute::<&mut Call<'static>, &mut Call<'_>>(self.call.as_mut()) }
    }
}

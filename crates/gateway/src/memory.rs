//! Memory of all connections of the process, whichever protocol they speak, in two bounds.
//!
//! Memory for small requests and answers is counted separately from memory for large ones, so that neither takes the room of the other: a
//! large request without room is refused, and the client retries later, while small requests are served. Only the first few KiB of each
//! connection are not counted. These are two counters and no semaphore, because bytes that have already arrived are counted even beyond the
//! limit, which a semaphore cannot do.
//!
//! Nobody can use up what others need: the holders of one capability have a part of each bound together, and all callers but the owner leave
//! a part for the owner. [`Account`] says whose memory it is; requests are answered within the scope of one.

use millrace_node::token::{Principal, TokenId};
use millrace_wire::{Code, Result};
use std::{
    cell::RefCell,
    collections::HashMap,
    future::Future,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::time::sleep;

/// Up to this size, the memory of a connection counts as small.
pub(crate) const SMALL_BYTES: usize = 64 << 10;
/// Memory that every connection may have, and that is not counted.
const FREE_BYTES: usize = 4 << 10;
/// Everything small together.
const SMALL_MAX_BYTES: usize = 512 << 20;
/// The memory of an HTTP connection while it answers requests: the parser's buffers in both directions, and its state.
const HTTP_BYTES: usize = 24 << 10;
/// The memory of one of several requests of an HTTP connection.
const STREAM_BYTES: usize = 8 << 10;
/// Everything larger together, coming and going.
const LARGE_MAX_BYTES: usize = 256 << 20;

/// How often memory is asked for, while others have it.
const RETRY: Duration = Duration::from_millis(100);
const TRIES: u32 = 300;

/// All callers but the owner have at most all but this part of each bound.
const OWNERS_PART: usize = 4;
/// The holders of one capability, whatever they made of it, have at most this part of each bound.
const HOLDERS_PART: usize = 4;
/// The holders of one capability have at most this part of the connections.
const CONNECTIONS_PART: usize = 2;

/// What is in use.
#[derive(Debug, Default)]
struct Used {
    large: AtomicUsize,
    small: AtomicUsize,
    connections: AtomicUsize,
}

impl Used {
    const fn nothing() -> Self {
        Self { large: AtomicUsize::new(0), small: AtomicUsize::new(0), connections: AtomicUsize::new(0) }
    }
}

/// By all callers of this process.
static ALL: Used = Used::nothing();
/// By all but the owner.
static OTHERS: Used = Used::nothing();
/// By the holders of each capability, by the id of its first block.
static HOLDERS: Mutex<Option<HashMap<TokenId, Weak<Holder>>>> = Mutex::new(None);

tokio::task_local! {
    /// Whose memory is used now.
    static CURRENT: RefCell<Account>;
}

/// Whose memory it is.
#[derive(Clone, Debug, Default)]
pub(crate) enum Account {
    /// The owner's, or the host's own.
    #[default]
    Owner,
    /// A caller's that has shown no capability yet.
    Unknown,
    /// The holders' of one capability.
    Holder(Arc<Holder>),
}

/// What the holders of one capability use.
#[derive(Debug)]
pub(crate) struct Holder {
    id: TokenId,
    used: Used,
}

impl Drop for Holder {
    fn drop(&mut self) {
        let mut holders = HOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
        // Another one may have begun meanwhile.
        if let Some(holders) = holders.as_mut()
            && holders.get(&self.id).is_some_and(|holder| holder.strong_count() == 0)
        {
            holders.remove(&self.id);
        }
    }
}

/// A connection of a holder, while it lives.
#[derive(Debug)]
pub(crate) struct Connected(Account);

impl Drop for Connected {
    fn drop(&mut self) {
        if let Account::Holder(holder) = &self.0 {
            holder.used.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Account {
    /// The account of a principal.
    pub fn of(principal: &Principal) -> Self {
        // Whatever a holder adds to its capability, the first id stays.
        let Principal::Holder { id, .. } = principal else { return Self::Owner };
        let mut holders = HOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
        let holders = holders.get_or_insert_default();
        if let Some(holder) = holders.get(id).and_then(Weak::upgrade) {
            return Self::Holder(holder);
        }
        let holder = Arc::new(Holder { id: *id, used: Used::nothing() });
        holders.insert(*id, Arc::downgrade(&holder));
        Self::Holder(holder)
    }

    /// Takes a connection, if the capability does not have its share of so many already.
    pub fn connect(self, of: usize) -> Result<Connected> {
        if let Self::Holder(holder) = &self {
            let most = of.div_ceil(CONNECTIONS_PART);
            let taken = holder.used.connections.fetch_add(1, Ordering::Relaxed);
            let connected = Connected(self);
            if taken >= most {
                return Err(Code::ConnectionsExhausted
                    .error(format!("{taken} connections are open with this capability; its share is {most}")));
            }
            return Ok(connected);
        }
        Ok(Connected(self))
    }

    /// Works for this account, or for the one of a capability that is admitted meanwhile; leaves here which one it was.
    pub fn around<R>(&mut self, work: impl FnOnce() -> R) -> R {
        CURRENT.sync_scope(RefCell::new(std::mem::take(self)), || {
            let done = work();
            *self = current();
            done
        })
    }

    /// The same for a future.
    pub fn within<F: Future>(self, work: F) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(RefCell::new(self), work)
    }

    /// What counts its memory, each with its limits for large and small.
    fn counters(&self) -> impl Iterator<Item = (&Used, usize, usize)> {
        let part = |used, part: usize| (used, LARGE_MAX_BYTES / part, SMALL_MAX_BYTES / part);
        let others = (&OTHERS, all_but(LARGE_MAX_BYTES), all_but(SMALL_MAX_BYTES));
        let holder = match self {
            Self::Holder(holder) => Some(part(&holder.used, HOLDERS_PART)),
            _ => None,
        };
        let others = (!matches!(self, Self::Owner)).then_some(others);
        [Some(part(&ALL, 1)), others, holder].into_iter().flatten()
    }

    fn is_short(&self) -> bool {
        self.counters().any(|(used, large_max, _)| used.large.load(Ordering::Relaxed) >= large_max)
    }
}

const fn all_but(bytes: usize) -> usize {
    bytes - bytes / OWNERS_PART
}

/// Whose memory is used now. Outside a scope it is the host's own.
pub(crate) fn current() -> Account {
    CURRENT.try_with(|current| current.borrow().clone()).unwrap_or_default()
}

/// A caller was admitted: from now on, what is used here is used by it. Of several capabilities, the first one counts.
pub(crate) fn charge(principal: &Principal) {
    let _ = CURRENT.try_with(|current| {
        let mut current = current.borrow_mut();
        if !matches!(*current, Account::Holder(_)) {
            *current = Account::of(principal);
        }
    });
}

/// Whether no memory is left for large requests: then none is accepted.
pub(crate) fn is_short() -> bool {
    current().is_short()
}

/// How much memory a connection may use now before it has to wait.
pub(crate) fn allowance() -> usize {
    let account = current();
    let is_full = account.counters().any(|(used, _, small_max)| used.small.load(Ordering::Relaxed) >= small_max);
    match (is_full, account.is_short()) {
        (true, _) => FREE_BYTES,
        (false, true) => SMALL_BYTES,
        (false, false) => usize::MAX,
    }
}

/// Room for a connection that is about to answer requests over HTTP, once there is.
pub(crate) async fn for_http() -> Result<Reservation> {
    for _ in 0..TRIES {
        if allowance() > FREE_BYTES {
            let mut reservation = Reservation::default();
            reservation.count(FREE_BYTES + HTTP_BYTES);
            return Ok(reservation);
        }
        sleep(RETRY).await;
    }
    Err(Code::HttpMemoryShort.error(format!("connections take {} MiB", SMALL_MAX_BYTES >> 20)))
}

/// Room for one of several requests of a connection, with a body of at most so many bytes: what is large of it is counted as it comes.
pub(crate) fn for_stream(body: usize) -> Result<Reservation> {
    if allowance() <= FREE_BYTES {
        return Err(Code::HttpMemoryShort.error(format!("connections take {} MiB", SMALL_MAX_BYTES >> 20)));
    }
    let mut reservation = Reservation::default();
    reservation.count(body.saturating_add(FREE_BYTES + STREAM_BYTES).min(SMALL_BYTES));
    Ok(reservation)
}

/// Whether there is no room for this number of bytes.
#[cfg(test)]
pub(crate) fn is_short_of<const BYTES: usize>() -> bool {
    ALL.large.load(Ordering::Relaxed) + BYTES > LARGE_MAX_BYTES
}

/// Waits until there is room for this number of bytes, within a limit; it does not take them.
pub(crate) async fn room_for(bytes: usize) -> Result<()> {
    for _ in 0..TRIES {
        if Reservation::of(bytes).is_ok() {
            return Ok(());
        }
        sleep(RETRY).await;
    }
    Reservation::of(bytes).map(drop)
}

/// A part of the memory; given back when dropped.
pub(crate) struct Reservation {
    account: Account,
    large: usize,
    small: usize,
}

impl Default for Reservation {
    fn default() -> Self {
        Self { account: current(), large: 0, small: 0 }
    }
}

impl Reservation {
    /// Room for this number of bytes; none is counted for small numbers.
    pub fn of(bytes: usize) -> Result<Option<Reservation>> {
        if bytes <= SMALL_BYTES {
            return Ok(None);
        }
        let mut reservation = Reservation::default();
        reservation.grow(bytes)?;
        Ok(Some(reservation))
    }

    pub fn grow(&mut self, to: usize) -> Result<()> {
        let more = to.saturating_sub(self.large);
        self.large += more;
        let mut refused = None;
        for (used, large_max, _) in self.account.counters() {
            let taken = used.large.fetch_add(more, Ordering::Relaxed);
            if taken + more > large_max {
                refused = Some((taken, large_max));
            }
        }
        // Dropping this returns the excess.
        match refused {
            Some((taken, most)) => {
                Err(Code::HttpMemoryShort.error(format!("{} of {} MiB are in use", taken >> 20, most >> 20)))
            }
            None => Ok(()),
        }
    }

    pub fn is_of(&self, account: &Account) -> bool {
        match (&self.account, account) {
            (Account::Holder(own), Account::Holder(other)) => own.id == other.id,
            (own, other) => std::mem::discriminant(own) == std::mem::discriminant(other),
        }
    }

    /// Counts it for another account from now on.
    pub fn charge_to(&mut self, account: &Account) {
        let (large, small) = (self.large, self.small);
        self.change(0, 0);
        self.account = account.clone();
        self.change(large, small);
    }

    /// The body of a request over HTTP/2 is no longer needed.
    pub fn is_answered(&mut self) {
        self.count(FREE_BYTES + STREAM_BYTES);
    }

    /// Room for so many bytes of the same account; of more, for what counts as small.
    pub fn beside(&self, bytes: usize) -> Reservation {
        let mut beside = Reservation { account: self.account.clone(), large: 0, small: 0 };
        beside.count(bytes.saturating_add(FREE_BYTES).min(SMALL_BYTES));
        beside
    }

    /// Counts what a connection holds.
    pub fn count(&mut self, bytes: usize) {
        let (large, small) = (bytes.saturating_sub(SMALL_BYTES), bytes.clamp(FREE_BYTES, SMALL_BYTES) - FREE_BYTES);
        self.change(large, small);
    }

    /// Counts so much in place of what is counted.
    fn change(&mut self, large: usize, small: usize) {
        if (large, small) == (self.large, self.small) {
            return;
        }
        for (used, ..) in self.account.counters() {
            change(&used.large, self.large, large);
            change(&used.small, self.small, small);
        }
        (self.large, self.small) = (large, small);
    }
}

fn change(all: &AtomicUsize, counted: usize, now: usize) {
    if now > counted {
        all.fetch_add(now - counted, Ordering::Relaxed);
    } else if now < counted {
        all.fetch_sub(counted - now, Ordering::Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.change(0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_what_is_large_is_bounded_and_comes_back() {
        assert!(Reservation::of(SMALL_BYTES).unwrap().is_none());
        let most = Reservation::of(LARGE_MAX_BYTES - (1 << 20)).unwrap();
        assert_eq!(Reservation::of(2 << 20).map(drop).unwrap_err().code(), Code::HttpMemoryShort);
        assert!(!is_short());
        let mut held = Reservation::default();
        held.count((1 << 20) + SMALL_BYTES);
        assert!(is_short());
        held.count(SMALL_BYTES);
        assert!(!is_short());
        drop(most);
        assert!(Reservation::of(2 << 20).unwrap().is_some());
    }

    fn holder(byte: u8) -> Account {
        Account::of(&Principal::Holder { id: TokenId([byte; 8]), subject: Some([byte].into()) })
    }

    #[test]
    fn no_holder_takes_the_room_of_others_and_all_of_them_leave_some_to_the_owner() {
        let (mut one, mut others, mib) = (holder(1), Account::Unknown, 1 << 20);
        let share = LARGE_MAX_BYTES / HOLDERS_PART;
        let held = one.around(|| Reservation::of(share).unwrap());
        // Whatever subject it adds, it is the same capability.
        assert_eq!(holder(1).around(|| Reservation::of(mib).map(drop)).unwrap_err().code(), Code::HttpMemoryShort);
        assert_eq!(one.around(allowance), SMALL_BYTES);
        assert_eq!(holder(2).around(allowance), usize::MAX);
        let of_two = holder(2).around(|| Reservation::of(share).unwrap());
        let of_others = others.around(|| Reservation::of(all_but(LARGE_MAX_BYTES) - 2 * share).unwrap());
        assert!(holder(3).around(|| Reservation::of(mib).is_err()));
        // The owner's, which stays where it is when a capability is shown later.
        assert!(Reservation::of(LARGE_MAX_BYTES - all_but(LARGE_MAX_BYTES)).is_ok());
        drop((held, of_others));
        assert!(one.around(|| Reservation::of(share).is_ok()));
        drop(of_two);
        let known = |account: &Account| matches!(account, Account::Holder(_));
        others.around(|| {
            charge(&Principal::Holder { id: TokenId([4; 8]), subject: None });
            charge(&Principal::Owner);
        });
        assert!(known(&others));
        drop((one, others));
        assert_eq!(HOLDERS.lock().unwrap().as_ref().map(HashMap::len), Some(0));
    }

    #[test]
    fn a_capability_has_a_share_of_the_connections() {
        let open: Vec<_> = (0..2).map(|_| holder(9).connect(4).unwrap()).collect();
        assert_eq!(holder(9).connect(4).unwrap_err().code(), Code::ConnectionsExhausted);
        assert!(holder(8).connect(4).is_ok() && Account::Owner.connect(1).is_ok());
        drop(open);
        assert!(holder(9).connect(4).is_ok());
    }

    #[test]
    fn what_many_connections_hold_is_bounded_however_little_each_has() {
        let mut held: Vec<Reservation> = Vec::new();
        let mut connections = 0;
        while allowance() > FREE_BYTES {
            let mut one = Reservation::default();
            one.count(SMALL_BYTES);
            held.push(one);
            connections += 1;
            assert!(connections <= SMALL_MAX_BYTES / (SMALL_BYTES - FREE_BYTES) + 1, "more than there is");
        }
        assert!(connections * SMALL_BYTES > SMALL_MAX_BYTES / 2, "{connections} connections have all of it");
        // The first few KiB are everybody's own.
        held.push(Reservation::default());
        held.last_mut().unwrap().count(FREE_BYTES);
        held[0].count(0);
        assert_ne!(allowance(), FREE_BYTES);
        assert!(futures_util::FutureExt::now_or_never(for_http()).is_some_and(|room| room.is_ok()));
        held.clear();
        // A body that has not come is counted as long as it may get, and a part of an answer while the client has not taken it.
        let mut request = for_stream(usize::MAX).unwrap();
        assert_eq!((request.small, for_stream(0).unwrap().small), (SMALL_BYTES - FREE_BYTES, STREAM_BYTES));
        request.is_answered();
        assert_eq!((request.small, request.beside(10).small), (STREAM_BYTES, 10));
        assert_eq!(request.beside(1 << 20).small, SMALL_BYTES - FREE_BYTES);
    }
}

//! Devices that were refused: so that people see why nothing comes from a device, whichever of host and device is wrong.
//!
//! ```text
//!  _refused_devices   one record: the newest refusals, and the capabilities of devices that were removed
//! ```
//!
//! A refusal is of a name, an identity and a capability, until this device is accepted. It survives a restart of the host. How it is known matters:
//!
//! * Who may append to the logs of the device *is* the device, as far as anybody knows here.
//! * The holder of another capability only says so: such refusals are few for each capability, and push out no others.
//! * A capability that is not valid comes with a connection that has proved nothing. It is noted only if it has the id of one that a device
//!   here had, so it makes no names. Anyone who has seen that id could say the same.

use super::{AttachedDevice, State, commands::Refusal};
use millrace_documents::rfc3339;
use millrace_journal::{Transaction, lock_within};
use millrace_namespace::{
    Namespace,
    admission::devices,
    names::{internal, newest_note, note},
};
use millrace_wire::{Code, Error, Hlc, NamespaceId, Result};
use serde::{Deserialize, Serialize};
use std::{
    mem,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The log of the refusals.
const REFUSED_LOG: &str = "_refused_devices";
const HISTORY: u64 = 4;
/// Most refusals that are kept, and most of one capability that does not permit to be the device.
const REFUSED_MAX: usize = 32;
const CLAIMED_MAX: usize = 4;
/// Most removed devices whose capabilities are remembered.
const REMOVED_MAX: usize = 32;
/// How many refusals are written at once, and how long it takes until one more is. More are counted, and written with a later one.
const WRITES: u32 = 32;
const WRITE_EVERY: Duration = Duration::from_secs(10);
/// The same for capabilities that are not valid. More of them are forgotten.
const LOOKS: u32 = 8;
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a write waits for the journal's lock.
const PATIENCE: Duration = Duration::from_secs(2);

/// How the name of a refused device is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KnownBy {
    /// It may append to the logs of the device, or has the capability with which the device was accepted before.
    Right,
    /// It says so, and has a capability that does not permit it.
    Claim,
    /// The connection named a capability that the device had, and proved nothing.
    Capability,
}

/// A device that is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedDevice {
    /// The name that it uses.
    pub device: String,
    /// How that is known.
    pub known_by: KnownBy,
    /// The identity that it says to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The code, and what was wrong.
    #[serde(flatten)]
    pub refusal: Refusal,
    /// What to do about it.
    #[serde(default)]
    pub remedy: String,
    /// When it was refused first and last, since it was accepted.
    pub first: String,
    /// See `first`.
    pub last: String,
    /// How often.
    pub times: u64,
    /// The address that it connects from, unless it is this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The id of its capability; none if it showed none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
    /// It is accepted again when its entries are, and not when it attaches.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sends: bool,
}

impl RefusedDevice {
    fn is_same(&self, other: &Self) -> bool {
        (&self.device, &self.identity, &self.capability) == (&other.device, &other.identity, &other.capability)
    }

    fn is_of(&self, device: &str, identity: &str) -> bool {
        match &self.identity {
            Some(own) => own == identity,
            None => self.device == device,
        }
    }

    /// The same refusal again, as it was the last time.
    fn again(&mut self, newer: Self) {
        let (first, times) = (mem::take(&mut self.first), self.times + newer.times);
        *self = Self { first, times, ..newer };
    }
}

/// The capability of a device that was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Removed {
    device: String,
    capability: String,
}

/// The record: oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Book {
    refused: Vec<RefusedDevice>,
    removed: Vec<Removed>,
}

impl Book {
    fn read(namespace: &Namespace) -> Result<Self> {
        // A record of a later version says nothing to this one.
        let record = newest_note(namespace, REFUSED_LOG)?;
        Ok(record.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default())
    }

    fn keep(&self, tx: &mut Transaction<'_>) -> Result<()> {
        note(tx, &internal(REFUSED_LOG), HISTORY, &serde_json::to_vec(self).expect("text and numbers always make JSON"))
    }

    fn add(&mut self, new: RefusedDevice) {
        if let Some(at) = self.refused.iter().position(|known| known.is_same(&new)) {
            let mut known = self.refused.remove(at);
            known.again(new);
            return self.refused.push(known);
        }
        let of_capability = |known: &&RefusedDevice| !known.is_known() && known.capability == new.capability;
        let is_full = self.refused.len() >= REFUSED_MAX;
        let room = match (new.is_known(), self.refused.iter().filter(of_capability).count() >= CLAIMED_MAX) {
            (false, true) => self.refused.iter().position(|known| of_capability(&known)),
            (_, _) if !is_full => return self.refused.push(new),
            (is_known, _) => {
                let claim = self.refused.iter().position(|known| !known.is_known());
                claim.or(if is_known { Some(0) } else { None })
            }
        };
        if let Some(room) = room {
            self.refused.remove(room);
            self.refused.push(new);
        }
    }
}

impl RefusedDevice {
    fn is_known(&self) -> bool {
        self.known_by == KnownBy::Right
    }
}

/// What is refused, newest first, with what to do about each: as the record of [`REFUSED_LOG`] says it.
fn refused_in(record: &[u8]) -> Vec<RefusedDevice> {
    let book: Book = serde_json::from_slice(record).unwrap_or_default();
    book.refused.into_iter().rev().map(|refused| RefusedDevice { remedy: remedy(&refused), ..refused }).collect()
}

/// Every device that is refused, newest first.
pub fn refused(namespace: &Namespace) -> Result<Vec<RefusedDevice>> {
    Ok(newest_note(namespace, REFUSED_LOG)?.map_or_else(Vec::new, |record| refused_in(&record)))
}

/// What to do about it.
fn remedy(refused: &RefusedDevice) -> String {
    let device = &refused.device;
    match Code::from_id(&refused.refusal.code) {
        // That of the code is for namespaces.
        Some(Code::FormatVersion) => {
            "Update Millrace on this host. Until then the device keeps its records, and tries again every five minutes."
                .into()
        }
        Some(Code::CapabilityDenied) => format!(
            "Give the device a capability for this name: `millrace cap issue --allow append={device}/ --allow create={device}/ --out {device}.cap`, or \
             `millrace device provision {device}` for a new one. If it is another device, give it its own name."
        ),
        Some(Code::ChannelRefused | Code::CapabilityRefused) => format!(
            "The capability was revoked, or its key was retired. If this is the device, give it another one (`millrace cap issue`); one that was provisioned \
             gets another identity: `millrace device rm {device}`, `millrace log rm` for each of its logs, `millrace device provision {device}`. \
             If it was removed for good, switch it off."
        ),
        Some(code) => code.remedy().into(),
        None => String::new(),
    }
}

/// A refusal that lasts until somebody does something.
fn is_lasting(code: Code) -> bool {
    matches!(
        code,
        Code::FormatVersion
            | Code::DeviceDiverged
            | Code::DeviceNameTaken
            | Code::CapabilityDenied
            | Code::CapabilityRefused
            | Code::ChannelRefused
    )
}

/// Stages that a device is accepted: to attach, or with all that it sends.
pub(super) fn accept(
    namespace: &Namespace,
    tx: &mut Transaction<'_>,
    device: &AttachedDevice,
    sends: bool,
) -> Result<()> {
    let mut book = Book::read(namespace)?;
    let (before, identity) = (book.refused.len(), device.identity.to_string());
    book.refused.retain(|refused| !refused.is_of(&device.name, &identity) || (refused.sends && !sends));
    if book.refused.len() == before { Ok(()) } else { book.keep(tx) }
}

/// Stages that a device was removed, and what capabilities it had; whether anything of this name was refused.
pub(super) fn forget(
    namespace: &Namespace,
    tx: &mut Transaction<'_>,
    device: &str,
    state: Option<&State>,
) -> Result<bool> {
    let mut book = Book::read(namespace)?;
    let before = book.clone();
    book.refused.retain(|refused| refused.device != device);
    let was_refused = book.refused.len() < before.refused.len();
    for capability in state.into_iter().flat_map(State::capabilities) {
        book.removed.retain(|removed| removed.capability != *capability);
        book.removed.push(Removed { device: device.to_owned(), capability: capability.to_owned() });
    }
    let surplus = book.removed.len().saturating_sub(REMOVED_MAX);
    book.removed.drain(..surplus);
    if book != before {
        book.keep(tx)?;
    }
    Ok(was_refused)
}

/// A device that is to be noted as refused.
pub(crate) struct RefusedAttempt<'a> {
    pub device: &'a str,
    pub identity: u64,
    pub error: &'a Error,
    pub address: Option<IpAddr>,
    pub capability: Option<String>,
    /// Whether it may append to the logs of the device.
    pub has_right: bool,
    /// Whether its entries are refused, or that it attaches.
    pub sends: bool,
}

/// A number of uses that comes back with time.
struct Allowance {
    left: u32,
    most: u32,
    every: Duration,
    since: Instant,
}

impl Allowance {
    fn new(most: u32, every: Duration) -> Self {
        Self { left: most, most, every, since: Instant::now() }
    }

    fn take(&mut self, now: Instant) -> bool {
        let more = now.saturating_duration_since(self.since).as_millis() / self.every.as_millis();
        if more > 0 {
            self.left = self.most.min(self.left.saturating_add(u32::try_from(more).unwrap_or(u32::MAX)));
            self.since = now;
        }
        self.left.checked_sub(1).inspect(|left| self.left = *left).is_some()
    }
}

/// The refusals of a host since its start, as far as they are not written.
pub(crate) struct Refusals(Mutex<Waiting>);

struct Waiting {
    refused: Vec<RefusedDevice>,
    writes: Allowance,
    looks: Allowance,
}

impl Waiting {
    fn add(&mut self, refused: RefusedDevice) {
        let mut book = Book { refused: mem::take(&mut self.refused), removed: Vec::new() };
        book.add(refused);
        self.refused = book.refused;
    }
}

impl Default for Refusals {
    fn default() -> Self {
        let (writes, looks) = (Allowance::new(WRITES, WRITE_EVERY), Allowance::new(LOOKS, LOOK_EVERY));
        Self(Mutex::new(Waiting { refused: Vec::new(), writes, looks }))
    }
}

impl Refusals {
    /// Notes that a device was refused. Whether no more is to be done, as with [`Refusals::write`].
    pub fn note(&self, namespace: &Namespace, refused: &RefusedAttempt<'_>) -> bool {
        let (Some(identity), Ok(_)) = (NamespaceId::new(refused.identity), devices::state_of(refused.device)) else {
            return true;
        };
        if !is_lasting(refused.error.code()) {
            return true;
        }
        let had = |id: &String| super::known_by(namespace, refused.device).is_some_and(|state| state.has(id));
        let is_known = refused.has_right || refused.capability.as_ref().is_some_and(had);
        let now = rfc3339(Hlc::from_wall_us(now_us()));
        self.write(
            namespace,
            RefusedDevice {
                device: refused.device.into(),
                known_by: if is_known { KnownBy::Right } else { KnownBy::Claim },
                identity: Some(identity.to_string()),
                refusal: Refusal { code: refused.error.code().id().into(), detail: refused.error.detail().into() },
                remedy: String::new(),
                first: now.clone(),
                last: now,
                times: 1,
                address: refused.address.map(|address| address.to_canonical().to_string()),
                capability: refused.capability.clone(),
                sends: refused.sends,
            },
        )
    }

    /// Whether another capability that is not valid is looked at.
    pub fn looks(&self) -> bool {
        self.waiting().looks.take(Instant::now())
    }

    /// Notes that a connection named a capability that is not valid, if a device had it.
    pub fn note_capability(&self, namespace: &Namespace, capability: &str, address: Option<IpAddr>) -> Result<()> {
        let Some(device) = owner_of(namespace, capability)? else { return Ok(()) };
        let now = rfc3339(Hlc::from_wall_us(now_us()));
        let detail = format!("the capability {capability} is not valid here");
        self.write(
            namespace,
            RefusedDevice {
                device,
                known_by: KnownBy::Capability,
                identity: None,
                refusal: Refusal { code: Code::ChannelRefused.id().into(), detail },
                remedy: String::new(),
                first: now.clone(),
                last: now,
                times: 1,
                address: address.map(|address| address.to_canonical().to_string()),
                capability: Some(capability.into()),
                sends: false,
            },
        );
        Ok(())
    }

    /// Writes a refusal, with those that wait; or lets it wait for the next one. Whether no more is to be done: if not, the journal's lock was not
    /// free, and a thread that may wait calls [`Refusals::flush`].
    fn write(&self, namespace: &Namespace, refused: RefusedDevice) -> bool {
        let due = {
            let mut waiting = self.waiting();
            waiting.add(refused);
            if !waiting.writes.take(Instant::now()) {
                return true;
            }
            mem::take(&mut waiting.refused)
        };
        self.commit(namespace, due)
    }

    fn commit(&self, namespace: &Namespace, due: Vec<RefusedDevice>) -> bool {
        let committed = namespace.journal().commit(|tx| {
            let mut book = Book::read(namespace)?;
            due.iter().cloned().for_each(|refused| book.add(refused));
            book.keep(tx)
        });
        if committed.is_err() {
            let mut waiting = self.waiting();
            due.into_iter().for_each(|refused| waiting.add(refused));
        }
        committed.is_ok()
    }

    /// Writes what waits. If that is not possible now, it waits for the next refusal.
    pub fn flush(&self, namespace: &Namespace) {
        let due = mem::take(&mut self.waiting().refused);
        if !due.is_empty() {
            lock_within(PATIENCE, || self.commit(namespace, due));
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What waits to be written of a device that is accepted now is not written any more.
    pub fn accepted(&self, device: &AttachedDevice) {
        let identity = device.identity.to_string();
        self.waiting().refused.retain(|refused| !refused.is_of(&device.name, &identity));
    }
}

/// The device that has this capability, or had it until it was removed.
fn owner_of(namespace: &Namespace, capability: &str) -> Result<Option<String>> {
    let catalog = namespace.journal().catalog()?;
    for (device, _) in devices::all(&catalog) {
        if super::known_by(namespace, device).is_some_and(|state| state.has(capability)) {
            return Ok(Some(device.to_owned()));
        }
    }
    let removed = Book::read(namespace)?.removed;
    Ok(removed.into_iter().find(|removed| removed.capability == capability).map(|removed| removed.device))
}

pub(super) fn now_us() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(device: &str, known_by: KnownBy, capability: Option<&str>) -> RefusedDevice {
        RefusedDevice {
            device: device.into(),
            known_by,
            identity: Some(device.into()),
            refusal: Refusal { code: "MR6300".into(), detail: String::new() },
            remedy: String::new(),
            first: "1".into(),
            last: "1".into(),
            times: 1,
            address: None,
            capability: capability.map(str::to_owned),
            sends: false,
        }
    }

    fn names(book: &Book) -> Vec<&str> {
        book.refused.iter().map(|refused| &*refused.device).collect()
    }

    #[test]
    fn the_same_refusal_again_is_counted_and_becomes_the_newest() {
        let mut book = Book::default();
        for device in ["kitchen", "cellar", "kitchen"] {
            book.add(RefusedDevice { last: "2".into(), ..refusal(device, KnownBy::Right, None) });
        }
        assert_eq!(names(&book), ["cellar", "kitchen"]);
        let kitchen = &book.refused[1];
        assert_eq!((kitchen.times, &*kitchen.first, &*kitchen.last), (2, "1", "2"));
    }

    #[test]
    fn claims_are_few_for_each_capability_and_push_out_no_device_that_is_known() {
        let mut book = Book::default();
        for number in 0..100 {
            book.add(refusal(&format!("claimed{number}"), KnownBy::Claim, Some("a")));
        }
        assert_eq!(names(&book), ["claimed96", "claimed97", "claimed98", "claimed99"]);
        for number in 0..REFUSED_MAX {
            book.add(refusal(&format!("known{number}"), KnownBy::Right, Some("b")));
        }
        assert_eq!((book.refused.len(), names(&book)[0]), (REFUSED_MAX, "known0"));
        book.add(refusal("claimed", KnownBy::Claim, Some("c")));
        assert_eq!((book.refused.len(), names(&book)[0]), (REFUSED_MAX, "known0"));
        book.add(refusal("known", KnownBy::Right, Some("c")));
        assert_eq!((book.refused.len(), names(&book)[0]), (REFUSED_MAX, "known1"));
    }

    #[test]
    fn uses_come_back_with_time() {
        let (mut allowance, now) = (Allowance::new(2, WRITE_EVERY), Instant::now());
        let taken = |allowance: &mut Allowance, now| (0..5).filter(|_| allowance.take(now)).count();
        assert_eq!(taken(&mut allowance, now), 2);
        assert_eq!(taken(&mut allowance, now + WRITE_EVERY + Duration::from_secs(1)), 1);
        assert_eq!(taken(&mut allowance, now + WRITE_EVERY * 100), 2);
    }
}

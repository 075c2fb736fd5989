//! The access of a device to the namespace that its journal is imported into.

use super::{Access, Served};
use crate::{
    Gated, Shows, Site,
    audit::{Act, audit},
    devices::{
        self, AttachedDevice, Import, RefusedAttempt, State,
        commands::{self, Command, SentCommand},
        updates::{self, FIRMWARE_LOG, NewImage, UpdateDoc},
    },
    links::{Accepted, Links},
    secrets::DeviceSecrets,
};
use millrace_journal::{Log, lock_within};
use millrace_namespace::admission::devices::state_of;
use millrace_security::token::{Principal, Resource, Right, Token, inspect};
use millrace_wire::{
    Code, Error, HISTORY_DEFAULT, LogName, Result,
    protocol::{Attach, Attached, Entered, Entries, Life},
};
use std::{net::IpAddr, sync::Arc, time::Duration};

/// How long a refusal of a capability waits for the journal's lock.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);

impl Served {
    /// Notes that a connection was refused that named this capability, and proved nothing. It is noted only if a device had it.
    pub fn capability_refused(&self, body: &[u8], address: Option<IpAddr>) {
        let Ok(chain) = inspect(body) else { return };
        let Principal::Holder { id, .. } = chain.principal() else { return };
        if !self.inner.refusals.looks() {
            return;
        }
        let (id, served) = (id.to_string(), Arc::downgrade(&self.inner));
        self.inner.submissions.work(self.gate(), move || {
            let Some(inner) = served.upgrade() else { return };
            let noted = lock_within(LOOK_PATIENCE, || inner.refusals.note_capability(&inner.namespace, &id, address));
            if let Err(error) = noted {
                tracing::debug!(target: "devices", code = error.code().id(), "{}", error.detail());
            }
        });
    }
}

/// A caller with the right to append to this log may attach as the device.
fn attaching(device: &str) -> String {
    format!("{device}/attach")
}

impl Access {
    /// Begins or continues the import of a device's journal. This requires the right to append to all logs below the device's name.
    pub fn attach(&self, attach: &Attach<'_>) -> Gated<(Import, Attached)> {
        self.imported(|| {
            let checked = self.check(Right::Append, Resource::log(&attaching(attach.device)));
            let (has_right, capability) = (checked.is_ok(), self.capability());
            let attached = checked.and_then(|()| devices::attach(self.namespace(), attach, capability.as_deref()));
            let device = (attach.device, attach.namespace);
            match &attached {
                Ok(Accepted { value: (import, _), .. }) => {
                    self.served.inner.refusals.accepted(import.device());
                }
                Err(error) => self.note_refused(device, error, (has_right, false)),
            }
            attached
        })
    }

    /// The id of the caller's capability.
    fn capability(&self) -> Option<String> {
        match self.caller.principal() {
            Principal::Owner => None,
            Principal::Holder { id, .. } => Some(id.to_string()),
        }
    }

    /// So that people see why nothing comes from a device: whether it has the right to its logs, and whether it was sending entries.
    fn note_refused(&self, (device, identity): (&str, u64), error: &Error, (has_right, sends): (bool, bool)) {
        let (address, capability) = (self.caller.peer().address, self.capability());
        let refused = RefusedAttempt { device, identity, error, address, capability, has_right, sends };
        let inner = &self.served.inner;
        if inner.refusals.note(self.namespace(), &refused) {
            return;
        }
        let served = Arc::downgrade(inner);
        inner.submissions.work(self.served.gate(), move || {
            served.upgrade().iter().for_each(|inner| inner.refusals.flush(&inner.namespace));
        });
    }

    /// Imports entries of a device; the result waits until they are safe. To create a log, the caller needs the right to.
    pub fn enter(&self, import: &Import, entries: &Entries<'_>) -> Gated<Entered> {
        self.imported(|| {
            let entered = import.enter(self.namespace(), entries, &|log, bytes, creates| {
                self.check_append(log, bytes, None)?;
                if creates {
                    self.check(Right::Create, Resource::log(log))?;
                    self.check_log(log, HISTORY_DEFAULT)?;
                }
                Ok(())
            });
            // It was accepted when it attached.
            entered.inspect_err(|error| {
                let AttachedDevice { name, identity } = import.device();
                self.note_refused((name, identity.get()), error, (true, true));
            })
        })
    }

    /// Accepts a command for a device: a record for one of its logs. This requires the right to append to this log of the device, under its
    /// name here.
    pub(super) fn command(&self, device: &str, log: &str, data: &[u8]) -> Result<SentCommand> {
        self.check_append(&format!("{device}/{log}"), data.len(), None)?;
        commands::send(self.namespace(), device, log, data).map(|committed| committed.value)
    }

    /// Whether the caller may ask a device for what a log of it has, or append a record of so many bytes to it: that requires the right to read
    /// this log, or to append to it, under its name here. Answers with what is known of the device.
    pub fn asks_device(&self, device: &str, log: &str, append_bytes: Option<usize>) -> Gated<State> {
        let name = format!("{device}/{log}");
        let check = || match append_bytes {
            Some(bytes) => self.check_append(&name, bytes, None),
            None => self.check(Right::Read, Resource::log(&name)),
        };
        self.inspect_if(check, |namespace| {
            log.parse::<LogName>()?;
            devices::state(namespace, device)
        })
    }

    /// Begins an update of a device. This requires the right to append to its log `firmware`, under its name here.
    pub(super) fn begin_update(&self, device: &str, image: &NewImage<'_>) -> Result<UpdateDoc> {
        self.check_append(&format!("{device}/{FIRMWARE_LOG}"), 0, None)?;
        let about = format!("device '{device}': version {}, SHA-256 {}", image.version, image.sha256);
        audit(self.namespace(), &self.by(Act::DeviceUpdate).about(about))?;
        updates::begin(self.namespace(), device, image).map(|committed| committed.value)
    }

    /// Stores a part of an image. This requires the same right.
    pub(super) fn add_firmware(&self, device: &str, update: u64, offset: u64, part: &[u8]) -> Result<UpdateDoc> {
        self.check_append(&format!("{device}/{FIRMWARE_LOG}"), 0, None)?;
        updates::add(self.namespace(), device, update, offset, part).map(|committed| committed.value)
    }

    /// Whether a device that is attached to this host may go on: it was not removed meanwhile, and still has the right to its logs.
    pub fn check_attached(&self, device: &AttachedDevice) -> Result<()> {
        self.check(Right::Append, Resource::log(&attaching(&device.name)))?;
        device.check(self.namespace(), &*self.namespace().journal().catalog()?).map(drop)
    }

    /// Gives the next records of an update to the commands for a device that is attached to this host, if none waits.
    pub fn feed_update(&self, device: &AttachedDevice) -> Gated<()> {
        self.note_commands(|| {
            self.check_attached(device)?;
            updates::feed(self.namespace(), &device.name)
        })
    }

    /// The log in which a device says how far its update is; before the device has sent that, or all that it has, the one that changes then. None if
    /// its firmware takes no updates. Only the host uses it, to wait for that.
    pub fn reports_log(&self, device: &str) -> Result<Option<Log>> {
        let namespace = self.namespace();
        match namespace.log(&updates::reports_of(device)?) {
            Ok(log) if devices::is_caught_up(namespace, device)? => Ok(Some(log)),
            Ok(_) => namespace.log(&state_of(device)?).map(Some),
            Err(_) if devices::has_records(namespace, device)? => Ok(None),
            Err(_) => namespace.log(&state_of(device)?).map(Some),
        }
    }

    /// The log with the commands of a device that is attached to this host. Only the host uses it, to wait for commands.
    pub fn commands_log(&self, device: &str) -> Result<Log> {
        self.namespace().log(&commands::log_of(device)?)
    }

    /// The command that is sent next to a device that has those up to `behind`, once it is safe. One of a namespace from which this one was
    /// restored is not sent, but becomes a dead letter.
    pub fn next_command(&self, device: &AttachedDevice, behind: u64) -> Gated<Option<Command>> {
        let next = || {
            let mut behind = behind;
            while let Some(command) = commands::next(self.namespace(), &device.name, behind)? {
                // After it was read: it may be for the next device of this name.
                self.check_attached(device)?;
                if commands::is_own(self.namespace(), &command) {
                    return Ok(Some(command));
                }
                let detail =
                    "the namespace was restored; whether the device got the command from the original is not known";
                commands::refused(self.namespace(), device, &command, &Code::DeviceCommandUnknown.error(detail))?;
                behind = command.number;
            }
            Ok(None)
        };
        let next = next().map(|next| {
            let end = self.namespace().journal().tail();
            self.served.gate().hold(Site::Deliver, next, Shows::All(end), None)
        });
        self.out(next, None)
    }

    /// Notes what a device says of its commands: it has all up to this one.
    pub fn commands_delivered(&self, device: &AttachedDevice, upto: u64) -> Gated<()> {
        self.note_commands(|| commands::delivered(self.namespace(), device, upto))
    }

    /// Notes that a device refused a command for good.
    pub fn command_refused(&self, device: &AttachedDevice, command: &Command, error: &Error) -> Gated<()> {
        self.note_commands(|| commands::refused(self.namespace(), device, command, error))
    }

    /// Notes why a device refuses all commands.
    pub fn commands_refused(&self, device: &AttachedDevice, error: &Error) -> Gated<()> {
        self.note_commands(|| commands::all_refused(self.namespace(), device, error))
    }

    fn note_commands(&self, note: impl FnOnce() -> Result<()>) -> Gated<()> {
        let noted = note().map(|()| {
            let end = self.namespace().journal().tail();
            self.served.gate().hold(Site::Deliver, (), Shows::Report(end), None)
        });
        self.out(noted, None)
    }

    /// What a stream of commands says of this namespace: its identity, its epoch, and its life, once a crash cannot forget it; none before the
    /// host has begun one.
    pub fn sender_of_commands(&self) -> Gated<Option<(u64, u32, Life)>> {
        let journal = self.namespace().journal();
        let life = Links::of(self.namespace()).current_life().map(|life| {
            let sender = life.map(|life| (journal.namespace().get(), journal.epoch(), life));
            self.served.gate().hold(Site::Deliver, sender, Shows::Report(journal.tail()), None)
        });
        self.out(life, None)
    }

    /// The capability for a device, which was made with the key of the device, if it was provisioned here.
    pub fn capability_for(&self, device: &str) -> Result<Option<Token>> {
        DeviceSecrets::of(self.namespace().dir()).capability(device)
    }

    fn imported<T>(&self, import: impl FnOnce() -> Result<Accepted<T>>) -> Gated<T> {
        let imported = import();
        let held = imported
            .map(|Accepted { value, end }| self.served.gate().hold(Site::Deliver, value, Shows::Batch(end), None));
        self.out(held, None)
    }
}

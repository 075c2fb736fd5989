//! The journal of a device, which it sends over this connection; and the commands for the device, which the host sends over the same one.
//!
//! ```text
//!  ATTACHED ── a command waits ──> PRESENT ── DONE ──> LINK ── LINKED n ──> DELIVER n + 1 ── DELIVERED ──> the next one
//!                                  if there is a capability for the device          one is under way at a time
//! ```

use super::{
    asking::{PRESENTED, RemoteRequest},
    connection::Connection,
    requests::Answer,
};
use millrace_node::{
    Access, Log,
    devices::{AttachedDevice, Import, commands::Command},
    token::Binding,
};
use millrace_wire::{
    Code, Error, Result,
    protocol::{
        Attach, Deliver, Delivered, Done, Entries, Failure, Frame, Heading, Item, Life, Link, Linked, Message, Present,
        Refused, encode,
    },
};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::time::sleep;

/// Requests to the device are numbered from here on. The device numbers its own from 1.
const FIRST_REQUEST: u64 = 1 << 32;
/// A device that takes longer for an answer has to connect again.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// The longest pause that a device may ask for.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How often it is looked whether the host has begun a life of this namespace, right after its start.
const LIFE_LOOK: Duration = Duration::from_millis(200);

/// Empty until the request that attaches the device is committed.
pub(super) type Attachment = Arc<OnceLock<Import>>;

/// A request to the device.
#[derive(Clone, Debug)]
pub(crate) enum DeviceRequest {
    Present(Presentation),
    Link {
        stream: String,
        namespace: u64,
        epoch: u32,
        life: Life,
    },
    Deliver {
        link: u64,
        gap: bool,
        command: Command,
    },
    /// What another client asks, behind the capability for the device, if that was not presented yet.
    Asked {
        present: Option<Presentation>,
        ask: RemoteRequest,
    },
}

/// A capability for a device, and the proof that this host has it.
pub(crate) type Presentation = (Vec<u8>, [u8; 32]);

impl DeviceRequest {
    pub fn write(&self, out: &mut Vec<u8>, heading: Heading) {
        match self {
            Self::Present((capability, proof)) => encode(out, heading, &Present { slot: 0, capability, proof }),
            Self::Link { stream, namespace, epoch, life } => {
                let (namespace, epoch, life) = (*namespace, *epoch, Some(*life));
                encode(out, heading, &Link { stream, namespace, epoch, life, ..Link::default() });
            }
            Self::Deliver { link, gap, command } => {
                let Command { number, id, hlc, log, data } = command;
                let item = Item { log, data, id: *id, hlc: *hlc, ..Item::default() };
                encode(out, heading, &Deliver { link: *link, first: *number, gap: *gap, items: vec![item] });
            }
            Self::Asked { present, ask } => {
                if let Some((capability, proof)) = present {
                    let heading = Heading { request: heading.request + PRESENTED, ..heading };
                    encode(out, heading, &Present { slot: 0, capability, proof });
                }
                ask.write(out, heading);
            }
        }
    }
}

/// The commands for the device of a connection.
pub(super) struct DeviceCommands {
    device: AttachedDevice,
    /// The number of the next request, and of the LINK that opened the stream.
    request: u64,
    link: u64,
    /// What the device has not answered.
    asked: Option<(u64, DeviceRequest)>,
    /// The last command that the device has.
    number: u64,
}

/// What is noted before the next command.
enum Noted {
    Delivered,
    Refused(Command, Error),
    Pause(Duration),
}

impl Connection {
    pub(super) fn attach(&mut self, access: &Access, frame: &Frame<'_>, raw: &[u8]) -> Result<()> {
        // Entries may follow at once: they are committed after this.
        let attachment = Attachment::default();
        self.device = Some(attachment.clone());
        self.commit_with(access, frame, raw, move |access, frame| {
            let attach: Attach<'_> = frame.message()?;
            Ok(access.attach(&attach).map(|(import, attached)| {
                let _ = attachment.set(import);
                Answer::Attached(attached)
            }))
        })
    }

    pub(super) fn enter(&mut self, access: &Access, frame: &Frame<'_>, raw: &[u8]) -> Result<()> {
        let unattached = || Code::MessageUnexpected.error("no device is attached on this connection");
        let attachment = self.device.clone().ok_or_else(unattached)?;
        self.submit(access, frame, raw, move |access, frame| {
            let Some(import) = attachment.get() else { return Ok(access.refuse(unattached(), None)) };
            let entries: Entries<'_> = frame.message()?;
            Ok(access.enter(import, &entries).map(Answer::Entered))
        });
        Ok(())
    }

    // Commands.

    /// The device is attached: as soon as a command waits for it, it is sent.
    pub(super) fn begin_commands(&mut self) {
        let device = self.device.as_ref().and_then(|device| device.get()).map(|import| import.device().clone());
        let (Some(device), Some(access)) = (device, self.access.clone()) else { return };
        let before = self.commands.take();
        if let Some(before) = &before {
            self.waits.cancel(before.request);
        }
        let request = before.map_or(FIRST_REQUEST, |before| before.request + 1);
        self.commands = Some(DeviceCommands { device: device.clone(), request, link: 0, asked: None, number: 0 });
        let exporter = self.identity.exporter;
        let _ = self.waits.add(request, begin(access, device, exporter));
    }

    /// Something is asked of the device now: it has to answer.
    pub(super) fn asked(&mut self, request: u64, asked: &DeviceRequest) {
        let Some(commands) = &mut self.commands else { return };
        commands.asked = Some((request, asked.clone()));
        let silent = || Code::LinkSilent.error("the device has not answered a request within 60 s");
        let _ = self.waits.add(request, async move {
            sleep(ANSWER_PATIENCE).await;
            Err(silent())
        });
    }

    /// Whether a message is an answer of the device.
    pub(super) fn is_told(&self, frame: &Frame<'_>) -> bool {
        let is_answer = matches!(frame.kind, Done::TYPE | Linked::TYPE | Delivered::TYPE | Failure::TYPE);
        (is_answer || RemoteRequest::is_answered_by(frame.kind)) && self.commands.is_some()
    }

    /// Takes an answer of the device. One that is late is ignored.
    pub(super) fn told(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let (access, request) = (access.clone(), frame.heading.request);
        if self.asked_told(frame) {
            return Ok(());
        }
        let Some(commands) = &mut self.commands else { return Ok(()) };
        let Some((_, asked)) = commands.asked.take_if(|(number, _)| *number == request) else { return Ok(()) };
        let device = commands.device.clone();
        self.waits.cancel(request);
        commands.request += 1;
        let next = commands.request;
        match (frame.kind, asked) {
            (Failure::TYPE, asked) => {
                let failure: Failure<'_> = frame.message()?;
                let error = said(failure.code, failure.detail, &asked);
                self.waits.add(next, refused(access, device, error))
            }
            (Done::TYPE, DeviceRequest::Present(_)) => self.waits.add(next, link(access, device)),
            (Linked::TYPE, DeviceRequest::Link { .. }) => {
                let linked: Linked = frame.message()?;
                (commands.link, commands.number) = (request, linked.number);
                self.waits.add(next, go_on(access, device, (request, linked.number), Noted::Delivered))
            }
            (Delivered::TYPE, asked @ DeviceRequest::Deliver { .. }) => {
                let delivered: Delivered = frame.message()?;
                commands.number = delivered.number;
                let at = (commands.link, delivered.number);
                let noted = match (&delivered.refused, &asked) {
                    (Some(Refused { retry_after_ms: Some(after), .. }), _) => {
                        Noted::Pause(Duration::from_millis((*after).into()).min(PAUSE_MAX))
                    }
                    (Some(Refused { code, detail, .. }), DeviceRequest::Deliver { command, .. }) => {
                        Noted::Refused(command.clone(), said(code, detail, &asked))
                    }
                    _ => Noted::Delivered,
                };
                self.waits.add(next, go_on(access, device, at, noted))
            }
            (kind, _) => Err(Code::MessageUnexpected.error(format!("message of type {kind}"))),
        }
    }
}

/// The error that a device reports, by its code: devices have no room for texts.
fn said(code: &str, detail: &str, asked: &DeviceRequest) -> Error {
    let known = Code::from_id(code);
    let detail = match (known, asked) {
        _ if !detail.is_empty() => detail.to_owned(),
        (Some(Code::LogNotFound), DeviceRequest::Deliver { command, .. }) => {
            format!("the device has no log '{}'", command.log)
        }
        (Some(Code::CapabilityDenied), DeviceRequest::Deliver { command, .. }) => {
            format!("the device accepts no commands for log '{}'", command.log)
        }
        (Some(Code::RecordTooLong), DeviceRequest::Deliver { command, .. }) => {
            format!("{} bytes are too long for log '{}' of the device", command.data.len(), command.log)
        }
        (Some(Code::CapabilityDenied), _) => {
            "the device requires a capability of its own key, and this host has none: provision the device here".into()
        }
        (Some(Code::CapabilityRefused), _) => {
            "the device does not accept the capability that this host has for it".into()
        }
        (Some(Code::LinkForked), _) => {
            "the device has commands of a later state of this namespace, which was put back from an older copy".into()
        }
        _ => format!("the device refuses ({code})"),
    };
    known.unwrap_or(Code::HostCodeUnknown).error(detail)
}

/// Waits until a command is there behind the number that the device has. If none is, an update of the device may have some.
async fn one_waits(access: &Access, device: &AttachedDevice, behind: u64) -> Result<()> {
    loop {
        let (log, reports) = (access.commands_log(&device.name)?, access.reports_log(&device.name)?);
        let seen = reports.as_ref().map_or(0, Log::latest);
        let of_device = device.clone();
        access.submit(move |access| access.feed_update(&of_device)).await.await?;
        tokio::select! {
            biased;
            () = access.growth(&log, behind.max(log.earliest().saturating_sub(1))) => return Ok(()),
            () = grows(access, reports.as_ref(), seen) => {}
        }
    }
}

async fn grows(access: &Access, log: Option<&Log>, above: u64) {
    match log {
        Some(log) => access.growth(log, above).await,
        None => std::future::pending().await,
    }
}

async fn begin(access: Access, device: AttachedDevice, exporter: Option<[u8; 32]>) -> Result<Answer> {
    one_waits(&access, &device, 0).await?;
    access.check_attached(&device)?;
    match presentation(&access, &device.name, exporter) {
        Ok(Some(present)) => Ok(Answer::ToDevice(DeviceRequest::Present(present))),
        Ok(None) => link(access, device).await,
        // Its file cannot be read, or others could have changed it.
        Err(error) => refused(access, device, error).await,
    }
}

/// The capability for a device, if this host has one. Without a channel, a proof would be bound to nothing.
pub(super) fn presentation(access: &Access, device: &str, exporter: Option<[u8; 32]>) -> Result<Option<Presentation>> {
    let (Some(exporter), Some(token)) = (exporter, access.capability_for(device)?) else { return Ok(None) };
    Ok(Some((token.body().to_vec(), token.proof(&Binding::Exporter(exporter)))))
}

async fn link(access: Access, device: AttachedDevice) -> Result<Answer> {
    let (namespace, epoch, life) = loop {
        match access.submit(Access::sender_of_commands).await.await? {
            Some(sender) => break sender,
            None => sleep(LIFE_LOOK).await,
        }
    };
    Ok(Answer::ToDevice(DeviceRequest::Link { stream: format!("commands/{}", device.name), namespace, epoch, life }))
}

/// The device takes no commands on this connection. What waits is sent on a later one.
async fn refused(access: Access, device: AttachedDevice, error: Error) -> Result<Answer> {
    tracing::warn!(target: "devices", device = device.name, code = error.code().id(), "commands were refused: {}", error.detail());
    access.submit(move |access| access.commands_refused(&device, &error)).await.await?;
    std::future::pending().await
}

/// Notes what the device has answered, waits for the next command, and sends it. `link` is the stream, and `number` the last command that the
/// device has.
async fn go_on(access: Access, device: AttachedDevice, (stream, number): (u64, u64), noted: Noted) -> Result<Answer> {
    let latest = access.commands_log(&device.name)?.latest();
    if number > latest {
        let detail = format!("the device has {number} commands; this namespace has sent {latest}");
        return refused(access, device, Code::LinkOutOfOrder.error(detail)).await;
    }
    let of_device = device.clone();
    match noted {
        Noted::Delivered => access.submit(move |access| access.commands_delivered(&of_device, number)).await.await?,
        Noted::Refused(command, error) => {
            let refused = move |access: &Access| access.command_refused(&of_device, &command, &error);
            access.submit(refused).await.await?;
        }
        Noted::Pause(pause) => sleep(pause).await,
    }
    loop {
        one_waits(&access, &device, number).await?;
        let of_device = device.clone();
        let next = access.submit(move |access| access.next_command(&of_device, number)).await.await?;
        if let Some(command) = next {
            let gap = command.number != number + 1;
            return Ok(Answer::ToDevice(DeviceRequest::Deliver { link: stream, gap, command }));
        }
    }
}

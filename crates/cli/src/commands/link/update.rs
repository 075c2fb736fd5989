//! `millrace device update`: new firmware for a device.

use super::{LOOK_EVERY, dump::read};
use crate::{
    args::{DeviceUpdateArgs, Global},
    out::Out,
    place::{Place, remote::segment},
    progress::{Progress, Unit},
    report::{Failure, Outcome},
    show,
};
use base64::prelude::{BASE64_STANDARD, Engine};
use millrace_node::{
    Code, NamespaceId, Result,
    devices::{
        self, KnownBy, RefusedDevice,
        commands::Refusal,
        updates::{self, NewImage, PART_BYTES, Stage, UpdateDoc},
    },
    manage::Order,
};
use serde::Deserialize;
use serde_json::json;
use std::{fs, thread, time::Instant};

/// The exit code if the time was over before the update had ended.
const TRY_LATER: u8 = 75;
/// Digits of the hash that are the version, if none was given.
const VERSION_DIGITS: usize = 12;

/// What the namespace says of the device.
#[derive(Deserialize)]
struct Seen {
    firmware: Option<updates::Firmware>,
    commands_refused: Option<Refusal>,
    /// The identity of the device.
    namespace: u64,
    #[serde(default)]
    refused: Vec<RefusedDevice>,
}

impl Seen {
    /// Why the device does not get the update that waits for it.
    fn hindrance(self) -> Option<(&'static str, Refusal)> {
        let identity = NamespaceId::new(self.namespace).map(|identity| identity.to_string());
        let is_device = |it: &RefusedDevice| it.known_by == KnownBy::Right && it.identity == identity;
        let by_host = self.refused.into_iter().find(is_device).map(|it| ("this host refuses the device", it.refusal));
        by_host.or_else(|| self.commands_refused.map(|refusal| ("the device refuses commands", refusal)))
    }
}

struct Updating<'a> {
    place: Place,
    device: &'a str,
    progress: Progress,
    /// The state and the percent that were printed last.
    printed: Option<(Stage, u64)>,
}

pub fn run(args: &DeviceUpdateArgs, global: &Global, out: &mut Out) -> Outcome {
    check_size(args)?;
    let (image, began) = (read(&args.image)?, Instant::now());
    let sha256 = updates::hash_of(&image);
    let version = args.version.clone().unwrap_or_else(|| sha256[..VERSION_DIGITS].to_owned());
    let size = image.len() as u64;
    let progress = Progress::new("sending", Some(size), Unit::Bytes, !out.json());
    let mut updating = Updating { place: Place::find(global)?, device: &args.name, progress, printed: None };
    let mut update = updating.begin(&NewImage { size, sha256: &sha256, version: &version })?;
    while update.state == Stage::Storing {
        let from = (update.stored as usize).min(image.len());
        let part = &image[from..image.len().min(from + PART_BYTES)];
        update = updating.add(update.number, from as u64, part)?;
    }
    let until = match (args.no_wait, args.wait) {
        (true, _) => Some(began),
        (false, wait) => wait.map(|wait| began + wait),
    };
    updating.follow(update, until, args.no_wait, out)
}

/// Before the file is read.
fn check_size(args: &DeviceUpdateArgs) -> Result<()> {
    let bytes = fs::metadata(&args.image).map_or(0, |file| file.len());
    if bytes <= updates::IMAGE_MAX_BYTES {
        return Ok(());
    }
    let (shown, limit) = (args.image.display(), updates::IMAGE_MAX_BYTES);
    Err(Code::UpdateTooLarge.error(format!("{shown} has {bytes} bytes; the limit is {limit}")))
}

fn percent(update: &UpdateDoc) -> u64 {
    match update.state {
        Stage::Storing | Stage::Waiting => 0,
        Stage::Receiving | Stage::Refused => u64::from(update.sent) * 100 / u64::from(update.size.max(1)),
        Stage::Ready | Stage::Trial | Stage::Confirmed | Stage::Reverted => 100,
    }
}

fn failure(update: &UpdateDoc) -> millrace_node::Error {
    let code = update.code.as_deref().and_then(Code::from_id).unwrap_or(Code::HostCodeUnknown);
    code.error(update.detail.clone().unwrap_or_default())
}

impl Updating<'_> {
    fn begin(&self, image: &NewImage<'_>) -> Result<UpdateDoc> {
        match &self.place {
            Place::Local(namespace) => {
                let begun = updates::begin(namespace, self.device, image)?;
                namespace.journal().sync(begun.end)?;
                Ok(begun.value)
            }
            Place::Remote(remote, _) => remote.manage(&Order::BeginUpdate {
                device: self.device.to_owned(),
                size: image.size,
                sha256: image.sha256.to_owned(),
                version: image.version.to_owned(),
            }),
        }
    }

    fn add(&self, update: u64, offset: u64, part: &[u8]) -> Result<UpdateDoc> {
        match &self.place {
            Place::Local(namespace) => {
                let added = updates::add(namespace, self.device, update, offset, part)?;
                namespace.journal().sync(added.end)?;
                Ok(added.value)
            }
            Place::Remote(remote, _) => {
                let (device, base64) = (self.device.to_owned(), BASE64_STANDARD.encode(part));
                remote.manage(&Order::AddFirmware { device, update, offset, base64 })
            }
        }
    }

    fn look(&self) -> Result<Seen> {
        match &self.place {
            Place::Local(namespace) => {
                let devices::Device { firmware, commands_refused, state, refused, .. } =
                    devices::one(namespace, self.device)?;
                Ok(Seen { firmware, commands_refused, namespace: state.namespace, refused })
            }
            Place::Remote(remote, _) => remote.document(&format!("devices/{}", segment(self.device))),
        }
    }

    /// Prints how far the update is, until it has ended or the time is over.
    fn follow(&mut self, begun: UpdateDoc, until: Option<Instant>, no_wait: bool, out: &mut Out) -> Outcome {
        let number = begun.number;
        let mut update = begun;
        loop {
            self.print(&update, out)?;
            match update.state {
                Stage::Confirmed => return Ok(()),
                Stage::Reverted | Stage::Refused => return Err(failure(&update).into()),
                _ => {}
            }
            if no_wait {
                return Ok(());
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                // No error: the update goes on, and the same command follows it.
                return Err(Failure::Said(TRY_LATER));
            }
            thread::sleep(LOOK_EVERY);
            let seen = self.look()?;
            let next = seen.firmware.clone().and_then(|firmware| firmware.update);
            let replaced =
                || Code::UpdatePartUnexpected.error(format!("another update of device '{}' has begun", self.device));
            update = next.filter(|next| next.number == number).ok_or_else(replaced)?;
            let hindrance = if update.state.is_end() { None } else { seen.hindrance() };
            if let Some((who, Refusal { code, detail })) = hindrance {
                let code = Code::from_id(&code).unwrap_or(Code::HostCodeUnknown);
                return Err(code.error(format!("the update waits, since {who}: {detail}")).into());
            }
        }
    }

    fn print(&mut self, update: &UpdateDoc, out: &mut Out) -> Outcome {
        let (device, percent) = (self.device, percent(update));
        self.progress.set(u64::from(update.size) * percent / 100);
        let before = self.printed.replace((update.state, percent));
        if out.json() {
            if before != self.printed {
                let mut object = json!(update);
                (object["device"], object["percent"]) = (json!(device), json!(percent));
                out.object(&object)?;
            }
            return Ok(());
        }
        if before.is_some_and(|(state, _)| state == update.state) {
            return Ok(());
        }
        let version = &update.version;
        let said = match update.state {
            Stage::Storing => return Ok(()),
            Stage::Waiting => {
                let bytes = show::grouped(update.size.into());
                format!(
                    "update {} of {device} to version {version}, {bytes} bytes, waits for the device",
                    update.number
                )
            }
            Stage::Receiving => format!("{device} receives it"),
            Stage::Ready => format!("{device} has it, and its hash is right"),
            Stage::Trial => format!("{device} starts version {version}"),
            Stage::Confirmed => format!("{device} runs version {version}"),
            Stage::Reverted => format!("{device} went back to the firmware before"),
            Stage::Refused => format!("update {} of {device} has ended", update.number),
        };
        Ok(out.line(said)?)
    }
}

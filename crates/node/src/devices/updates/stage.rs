//! What the host has of an update, what the device says of it, and what the host sends next. Pure.

use super::{
    super::commands::{COMMAND_MAX_BYTES, Command, Refusal},
    FIRMWARE_LOG,
};
use millrace_wire::Code;
use serde::{Deserialize, Serialize};

/// How often a device may ask for the same part of an image again.
const RESENDS_MAX: u32 = 16;
/// How many records of an image are given to the stream of commands at once.
const BATCH: usize = 16;

const BEGIN: u8 = 1;
const PIECE: u8 = 2;
/// Bytes of a piece before those of the image.
const PIECE_HEAD_BYTES: usize = 9;

/// How far an update is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The image is not complete at the host.
    Storing,
    /// The device has not begun to receive it.
    Waiting,
    /// The device receives it.
    Receiving,
    /// The device has it, and has verified its hash.
    Ready,
    /// The device starts the new firmware, which has not reached a host yet.
    Trial,
    /// The new firmware has reached a host, and stays.
    Confirmed,
    /// The boot loader went back to the earlier firmware.
    Reverted,
    /// The device, or the host, gave up before the new firmware was started.
    Refused,
}

impl Stage {
    /// Whether nothing changes any more.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Confirmed | Self::Reverted | Self::Refused)
    }
}

/// Bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a SHA-256 in hexadecimal, in lower case.
pub(super) fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}

/// What a device says in its log `update`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct UpdateReport {
    pub state: String,
    pub running: String,
    /// The longest image, and the longest piece of one.
    pub slot: u32,
    pub piece: u32,
    #[serde(default)]
    pub update: u64,
    #[serde(default)]
    pub bytes: u32,
    #[serde(default)]
    pub resend: u16,
    #[serde(default)]
    pub sha256: String,
    #[serde(default)]
    pub code: Option<String>,
}

impl UpdateReport {
    fn stage(&self) -> Option<Stage> {
        // A host does not know the states of later firmware, and "idle" is none of an update.
        serde_json::from_value(serde_json::Value::String(self.state.clone())).ok()
    }

    /// Bytes of an image in one record.
    fn piece_bytes(&self) -> usize {
        (self.piece as usize).clamp(1, COMMAND_MAX_BYTES - PIECE_HEAD_BYTES)
    }

    fn refusal(&self) -> Option<Refusal> {
        let code = self.code.clone()?;
        let known = Code::from_id(&code);
        let detail = match known {
            Some(Code::UpdateTooLarge) => format!("the slot of the device has {} bytes", self.slot),
            Some(Code::UpdateDamaged) => "the device has other bytes than those that were sent".into(),
            Some(Code::UpdateReverted) => format!("the device runs version {} again", self.running),
            Some(Code::UpdateSlotFailed) => "the device could not write its slot, or start it".into(),
            _ => "the device refuses the update".into(),
        };
        Some(Refusal { code, detail })
    }
}

/// An update of a device: the record of `_updates/NAME`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Update {
    pub number: u64,
    pub version: String,
    pub size: u32,
    /// In hexadecimal.
    pub sha256: String,
    /// How many bytes of the image the host has, and the record of `_firmware/NAME` that has the first of them.
    pub stored: u32,
    pub first: u64,
    /// How many bytes of the image were given to the stream of commands; none before its beginning was.
    pub next: Option<u32>,
    /// The last record of the device that was taken into account.
    pub seen: u64,
    /// The number of the device's last request to send a part again, and how many were for this offset.
    pub resend: u16,
    pub from: u32,
    pub resends: u32,
    /// Why it ended at the host.
    pub failed: Option<Refusal>,
    pub ended: bool,
}

/// Records for the device.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    pub begins: bool,
    /// The parts of the image: from where on, and how many bytes.
    pub pieces: Vec<(u32, u32)>,
}

impl Update {
    pub fn is_complete(&self) -> bool {
        self.stored == self.size
    }

    pub fn fail(&mut self, code: Code, detail: impl Into<String>) {
        self.failed = Some(Refusal { code: code.id().to_owned(), detail: detail.into() });
        self.ended = true;
    }

    /// Whether the device speaks of this update. After a restore, another one may have had its number.
    fn is_of(&self, reported: &UpdateReport) -> bool {
        reported.update == self.number && reported.sha256 == self.sha256
    }

    pub fn stage(&self, reported: Option<&UpdateReport>) -> Stage {
        let said = reported.filter(|reported| self.is_of(reported)).and_then(UpdateReport::stage);
        match said {
            _ if self.failed.is_some() => Stage::Refused,
            Some(stage) => stage,
            None if self.is_complete() => Stage::Waiting,
            None => Stage::Storing,
        }
    }

    /// Why it failed.
    pub fn refusal(&self, reported: Option<&UpdateReport>) -> Option<Refusal> {
        let said = reported.filter(|reported| self.is_of(reported)).and_then(UpdateReport::refusal);
        self.failed.clone().or(said)
    }

    /// Whether a command is a record of this update.
    pub fn is_in(&self, command: &Command) -> bool {
        command.log == FIRMWARE_LOG && command.data.get(1..5) == Some(&(self.number as u32).to_le_bytes())
    }

    /// Takes what the device said last into account.
    pub fn hear(&mut self, seqno: u64, reported: &UpdateReport) {
        if self.ended || seqno <= self.seen {
            return;
        }
        self.seen = seqno;
        if !self.is_of(reported) {
            // It ignored the beginning, because it was trying another update, or its flash was erased.
            self.next = None;
            return;
        }
        self.ended = reported.stage().is_some_and(Stage::is_end);
        if reported.resend != self.resend && !self.ended {
            self.resends = if reported.bytes == self.from { self.resends + 1 } else { 1 };
            (self.resend, self.from) = (reported.resend, reported.bytes);
            self.next = self.next.map(|_| reported.bytes.min(self.size));
            if self.resends > RESENDS_MAX {
                let detail = format!("the device asked {RESENDS_MAX} times for what follows byte {}", reported.bytes);
                self.fail(Code::UpdateStalled, detail);
            }
        }
    }

    /// Whether there is something to send. More than the first records are sent only to a device that has begun.
    pub fn is_due(&self, reported: &UpdateReport) -> bool {
        let receives = self.is_of(reported) && reported.stage() == Some(Stage::Receiving);
        let follows = self.next.is_none_or(|next| receives && next < self.size);
        !self.ended && self.is_complete() && follows
    }

    /// What is sent next to a device that has got all commands before.
    pub fn advance(&mut self, reported: &UpdateReport) -> Batch {
        let mut batch = Batch::default();
        if !self.is_due(reported) {
            return batch;
        }
        batch.begins = self.next.is_none();
        if batch.begins {
            (self.resend, self.from, self.resends) = (0, 0, 0);
        }
        let mut next = self.next.unwrap_or(0);
        while next < self.size && batch.pieces.len() < BATCH {
            let bytes = (self.size - next).min(reported.piece_bytes() as u32); // at most 256
            batch.pieces.push((next, bytes));
            next += bytes;
        }
        self.next = Some(next);
        batch
    }

    /// The record with which the device begins.
    pub fn begin_record(&self, sha256: &[u8]) -> Vec<u8> {
        // The number of a record of a log that people write to by hand: it fits.
        let number = (self.number as u32).to_le_bytes();
        [&[BEGIN][..], &number, &self.size.to_le_bytes(), sha256, self.version.as_bytes()].concat()
    }

    pub fn piece_record(&self, offset: u32, bytes: &[u8]) -> Vec<u8> {
        [&[PIECE][..], &(self.number as u32).to_le_bytes(), &offset.to_le_bytes(), bytes].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCH, Batch, RESENDS_MAX, Stage, Update, UpdateReport, hex, unhex};
    use millrace_wire::Code;

    const HASH: [u8; 32] = [0xab; 32];

    fn update() -> Update {
        let (version, sha256) = ("2".to_owned(), hex(&HASH));
        Update { number: 7, version, size: 10_000, sha256, stored: 10_000, ..Update::default() }
    }

    fn says(state: &str, update: u64, bytes: u32, resend: u16) -> UpdateReport {
        let (running, sha256) = ("1".to_owned(), hex(&HASH));
        let (slot, piece, state) = (65_536, 240, state.to_owned());
        UpdateReport { state, running, slot, piece, update, bytes, resend, sha256, code: None }
    }

    #[test]
    fn pieces_follow_only_when_the_device_has_begun() {
        let mut update = update();
        let idle = says("idle", 0, 0, 0);
        let first = update.advance(&idle);
        assert!(first.begins);
        assert_eq!((first.pieces.len(), first.pieces[1]), (BATCH, (240, 240)));
        assert_eq!(update.advance(&idle), Batch::default());
        let receiving = says("receiving", 7, 0, 0);
        update.hear(1, &receiving);
        let second = update.advance(&receiving);
        assert_eq!((second.begins, second.pieces[0]), (false, (BATCH as u32 * 240, 240)));
        while update.is_due(&receiving) {
            update.advance(&receiving);
        }
        assert_eq!(update.next, Some(10_000));
        assert_eq!(update.begin_record(&HASH)[..9], [1, 7, 0, 0, 0, 0x10, 0x27, 0, 0]);
        assert_eq!(update.piece_record(256, b"x"), [2, 7, 0, 0, 0, 0, 1, 0, 0, b'x']);
    }

    #[test]
    fn a_device_that_asks_again_gets_what_it_lacks_and_one_that_ignored_the_beginning_gets_that() {
        let mut update = update();
        update.advance(&says("idle", 0, 0, 0));
        update.hear(3, &says("receiving", 7, 0, 0));
        update.advance(&says("receiving", 7, 0, 0));
        update.hear(4, &says("receiving", 7, 4096, 0));
        assert_eq!(update.next, Some(32 * 240), "progress sends nothing again");
        update.hear(5, &says("receiving", 7, 4096, 1));
        assert_eq!(update.next, Some(4096));
        update.hear(5, &says("receiving", 7, 0, 2));
        assert_eq!(update.next, Some(4096), "it was heard before");
        update.hear(6, &says("confirmed", 6, 0, 0));
        assert_eq!(update.next, None, "that was another update");
        let mut of_other_image = says("confirmed", 7, 10_000, 0);
        of_other_image.sha256 = hex(&[0; 32]);
        update.hear(7, &of_other_image);
        assert!(!update.ended && update.stage(Some(&of_other_image)) == Stage::Waiting);
    }

    #[test]
    fn an_update_that_makes_no_progress_ends() {
        let mut update = update();
        update.advance(&says("idle", 0, 0, 0));
        for resend in 1..=RESENDS_MAX as u16 + 1 {
            assert!(!update.ended);
            update.hear(u64::from(resend), &says("receiving", 7, 4096, resend));
        }
        assert_eq!(update.refusal(None).unwrap().code, Code::UpdateStalled.id());
        assert_eq!(update.stage(Some(&says("receiving", 7, 4096, 20))), Stage::Refused);
        assert_eq!(update.advance(&says("receiving", 7, 4096, 20)), Batch::default());
    }

    #[test]
    fn a_device_cannot_ask_for_pieces_of_any_length_or_for_bytes_behind_the_image() {
        let mut update = update();
        let mut odd = says("receiving", 7, u32::MAX, 1);
        odd.piece = u32::MAX;
        let batch = update.advance(&odd);
        assert_eq!(batch.pieces[0], (0, 247));
        update.hear(1, &odd);
        assert_eq!(update.next, Some(10_000));
        odd.piece = 0;
        (odd.bytes, odd.resend) = (0, 2);
        update.hear(2, &odd);
        assert_eq!(update.advance(&odd).pieces.len(), BATCH);
    }

    #[test]
    fn a_hash_is_64_digits_in_lower_case() {
        assert_eq!(unhex(&hex(&HASH)), Some(HASH));
        for bad in ["", "ab", &"AB".repeat(32), &"é".repeat(32), &"ab".repeat(33)] {
            assert_eq!(unhex(bad), None, "{bad}");
        }
    }
}

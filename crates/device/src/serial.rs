//! The serial line of a device: `spec/protocol/serial.md`. Frames in a stream of bytes, and the host's side of their sessions.

use crate::bytes::crc32c;

/// Bytes of data in a frame.
pub const DATA_MAX: usize = 128;
const HEAD: usize = 7;
const CHECKSUM: usize = 4;
/// A frame between its zeros: COBS takes one byte more.
const STUFFED_MAX: usize = HEAD + DATA_MAX + CHECKSUM + 1;
/// The session of an OPEN with which a host asks the device to connect.
const ANY: u32 = 0;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The next bytes of the connection.
    Data = 1,
    /// The begin of a connection, or the answer to it.
    Open,
    /// The end of a connection.
    Close,
    /// A part of an identity, or the answer to one: [`crate::provision`].
    Provision,
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// The connection that it belongs to.
    pub session: u32,
    /// Its number among the frames of its sender.
    pub number: u16,
    /// At most [`DATA_MAX`] bytes.
    pub data: Vec<u8>,
}

impl Frame {
    /// Appends the frame as it is on the line.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let mut plain = vec![self.kind as u8];
        plain.extend(self.session.to_le_bytes());
        plain.extend(self.number.to_le_bytes());
        plain.extend(&self.data);
        plain.extend(crc32c(0, &plain).to_le_bytes());
        to.push(0);
        for part in plain.split(|byte| *byte == 0) {
            to.push(part.len() as u8 + 1);
            to.extend(part);
        }
        to.push(0);
    }

    fn decode(stuffed: &[u8]) -> Option<Self> {
        let plain = unstuff(stuffed)?;
        let (body, checksum) = plain.split_at_checked(plain.len().checked_sub(CHECKSUM)?)?;
        let (head, data) = body.split_at_checked(HEAD)?;
        if crc32c(0, body).to_le_bytes() != *checksum {
            return None;
        }
        let kind =
            [Kind::Data, Kind::Open, Kind::Close, Kind::Provision].into_iter().find(|kind| *kind as u8 == head[0])?;
        let session = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
        Some(Self { kind, session, number: u16::from_le_bytes([head[5], head[6]]), data: data.to_vec() })
    }
}

/// Removes COBS: each group begins with the distance to the next zero.
fn unstuff(mut stuffed: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(stuffed.len());
    while let [distance, rest @ ..] = stuffed {
        let (group, others) = rest.split_at_checked(usize::from(*distance).checked_sub(1)?)?;
        plain.extend(group);
        if !others.is_empty() {
            plain.push(0);
        }
        stuffed = others;
    }
    Some(plain)
}

/// What a byte of the line turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A part of what may be a frame.
    Part,
    /// Text for the console.
    Text(u8),
    /// The end of a frame.
    Frame(Frame),
    /// The end of bytes that are no frame.
    Invalid,
}

/// Finds frames in a stream of bytes. It keeps at most one frame.
#[derive(Debug, Default)]
pub struct Decoder {
    stuffed: Vec<u8>,
    /// A zero came, and since then what may be a frame.
    within: bool,
    overlong: bool,
}

impl Decoder {
    /// Takes the next byte.
    pub fn take(&mut self, byte: u8) -> Found {
        if byte != 0 {
            if !self.within {
                return Found::Text(byte);
            }
            match self.stuffed.len() < STUFFED_MAX {
                true => self.stuffed.push(byte),
                false => self.overlong = true,
            }
            return Found::Part;
        }
        // A zero ends a frame; if that is not valid, it may begin one whose end the zero seemed to be.
        let ended = self.within && !self.stuffed.is_empty();
        let frame = if ended && !self.overlong { Frame::decode(&self.stuffed) } else { None };
        self.within = frame.is_none();
        self.overlong = false;
        self.stuffed.clear();
        match frame {
            Some(frame) => Found::Frame(frame),
            None if ended => Found::Invalid,
            None => Found::Part,
        }
    }
}

/// What the host's side of the line notices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The device begins a connection, which ends the one before. [`Side::accept`] or [`Side::close`] answers.
    Opened,
    /// The next bytes of the connection.
    Data(Vec<u8>),
    /// The device has ended the connection.
    Closed,
    /// A frame was lost, so the connection has ended.
    Lost,
    /// A frame that came before. If it is the last one, the answer has the last frame of this side again.
    Repeated,
    /// A byte for the console.
    Text(u8),
    /// Bytes that are no frame.
    Invalid,
}

/// The host's side of the line: at most one connection.
#[derive(Debug, Default)]
pub struct Side {
    decoder: Decoder,
    /// The connection that goes on.
    session: Option<u32>,
    /// The last one, which the device may still repeat.
    last: u32,
    /// The numbers of the next frames.
    expected: u16,
    sent: u16,
    /// What was sent last on the connection, as it is on the line.
    said: Vec<u8>,
}

impl Side {
    /// Takes the next byte of the line, and appends the answer, if it needs one, to `to`.
    pub fn take(&mut self, byte: u8, to: &mut Vec<u8>) -> Option<Heard> {
        match self.decoder.take(byte) {
            Found::Part => None,
            Found::Text(byte) => Some(Heard::Text(byte)),
            Found::Invalid => Some(Heard::Invalid),
            Found::Frame(frame) => self.frame(frame, to),
        }
    }

    fn frame(&mut self, frame: Frame, to: &mut Vec<u8>) -> Option<Heard> {
        if frame.kind == Kind::Provision {
            return None; // it belongs to no connection
        }
        if frame.kind == Kind::Open && frame.number == 0 && ![ANY, self.last].contains(&frame.session) {
            (self.session, self.last) = (Some(frame.session), frame.session);
            (self.expected, self.sent) = (1, 0);
            self.said.clear();
            return Some(Heard::Opened);
        }
        // Frames of another session were under way when this one began.
        self.session.filter(|session| *session == frame.session)?;
        match frame.number.wrapping_sub(self.expected) {
            0 if frame.kind == Kind::Data => {
                self.expected = self.expected.wrapping_add(1);
                Some(Heard::Data(frame.data))
            }
            0 if frame.kind == Kind::Close => {
                self.session = None;
                Some(Heard::Closed)
            }
            // The device repeats its last frame while it waits for an answer, of which the last frame may have been lost.
            u16::MAX => {
                self.repeat(to);
                Some(Heard::Repeated)
            }
            ahead if ahead > u16::MAX / 2 => Some(Heard::Repeated),
            _ => {
                self.close(to);
                Some(Heard::Lost)
            }
        }
    }

    /// Whether there is a connection.
    pub fn is_open(&self) -> bool {
        self.session.is_some()
    }

    fn say(&mut self, kind: Kind, data: &[u8], to: &mut Vec<u8>) {
        let Some(session) = self.session else { return };
        self.said.clear();
        Frame { kind, session, number: self.sent, data: data.to_vec() }.encode(&mut self.said);
        to.extend(&self.said);
        self.sent = self.sent.wrapping_add(1);
    }

    /// Sends the last frame again. The device ignores it if it has it.
    pub fn repeat(&self, to: &mut Vec<u8>) {
        if self.session.is_some() {
            to.extend(&self.said);
        }
    }

    /// Accepts the connection that the device began.
    pub fn accept(&mut self, to: &mut Vec<u8>) {
        self.say(Kind::Open, &[], to);
    }

    /// Sends bytes on the connection.
    pub fn send(&mut self, bytes: &[u8], to: &mut Vec<u8>) {
        bytes.chunks(DATA_MAX).for_each(|data| self.say(Kind::Data, data, to));
    }

    /// Ends the connection.
    pub fn close(&mut self, to: &mut Vec<u8>) {
        self.say(Kind::Close, &[], to);
        self.session = None;
    }

    /// Asks the device to begin a connection now, in place of the one that it believes to have.
    pub fn call(to: &mut Vec<u8>) {
        Frame { kind: Kind::Open, session: ANY, number: 0, data: Vec::new() }.encode(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(session: u32) -> Frame {
        Frame { kind: Kind::Open, session, number: 0, data: Vec::new() }
    }

    fn data(session: u32, number: u16, data: &[u8]) -> Frame {
        Frame { kind: Kind::Data, session, number, data: data.to_vec() }
    }

    /// What the side hears, and what it answers.
    fn give(side: &mut Side, frames: &[Frame]) -> (Vec<Heard>, Vec<Found>) {
        let (mut line, mut answer) = (Vec::new(), Vec::new());
        frames.iter().for_each(|frame| frame.encode(&mut line));
        let heard = line.iter().filter_map(|byte| side.take(*byte, &mut answer)).collect();
        let mut decoder = Decoder::default();
        (heard, answer.iter().map(|byte| decoder.take(*byte)).filter(|found| *found != Found::Part).collect())
    }

    #[test]
    fn a_repeated_frame_is_ignored_and_a_missing_one_ends_the_connection() {
        let mut side = Side::default();
        let (heard, _) = give(&mut side, &[open(7), open(7), data(7, 1, b"a"), data(7, 1, b"a"), data(7, 2, b"b")]);
        let [a, b] = [b"a", b"b"].map(|data| Heard::Data(data.to_vec()));
        assert_eq!(heard, [Heard::Opened, Heard::Repeated, a, Heard::Repeated, b]);
        let (heard, answer) = give(&mut side, &[data(7, 4, b"d"), data(7, 5, b"e"), open(7)]);
        assert_eq!(heard, [Heard::Lost]);
        assert_eq!(answer, [Found::Frame(Frame { kind: Kind::Close, session: 7, number: 0, data: Vec::new() })]);
        assert_eq!(give(&mut side, &[open(8), data(7, 3, b"late"), data(8, 1, b"x")]).0.len(), 2);
    }

    #[test]
    fn the_last_frame_is_sent_again_for_the_one_that_the_device_repeats() {
        let mut side = Side::default();
        give(&mut side, &[open(7), data(7, 1, b"a")]);
        assert_eq!(give(&mut side, &[data(7, 1, b"a")]).1, [], "nothing was sent yet");
        let mut line = Vec::new();
        side.send(&[5; DATA_MAX + 1], &mut line);
        let last = Found::Frame(data(7, 1, &[5]));
        assert_eq!(give(&mut side, &[data(7, 1, b"a")]).1, std::slice::from_ref(&last));
        assert_eq!(give(&mut side, &[open(7)]).1, [], "an older one");
        assert_eq!(give(&mut side, &[data(7, 2, b"b")]).0, [Heard::Data(b"b".to_vec())]);
        assert_eq!(give(&mut side, &[data(7, 2, b"b")]).1, [last]);
        give(&mut side, &[open(8)]);
        assert_eq!(give(&mut side, &[open(8)]).1, [], "what was sent in another session is not repeated");
    }

    #[test]
    fn numbers_begin_again_after_the_last_one() {
        let mut side = Side::default();
        give(&mut side, &[open(7)]);
        for number in 1..70_000_u32 {
            assert_eq!(give(&mut side, &[data(7, number as u16, b"a")]).0, [Heard::Data(b"a".to_vec())], "{number}");
        }
    }

    #[test]
    fn frames_of_an_identity_do_not_disturb_a_connection() {
        let identity = |session, number| Frame { kind: Kind::Provision, ..data(session, number, b"id") };
        let frames = [open(7), identity(9, 0), identity(7, 1), data(7, 1, b"a"), identity(7, 5), data(7, 2, b"b")];
        let [a, b] = [b"a", b"b"].map(|data| Heard::Data(data.to_vec()));
        assert_eq!(give(&mut Side::default(), &frames), (vec![Heard::Opened, a, b], vec![]));
    }

    #[test]
    fn a_device_cannot_begin_the_session_that_calls_it() {
        assert_eq!(give(&mut Side::default(), &[open(ANY), data(ANY, 1, b"a")]).0, []);
    }
}

//! The host's side of provisioning over the serial line, `spec/protocol/serial.md`: the identity goes to the device in frames, each after the
//! answer to the one before.

use crate::serial::{DATA_MAX, Frame, Kind};

/// Answers of a device; other numbers are those of error codes.
const GO_ON: u16 = 0;
const STORED: u16 = 1;
const AGAIN: u16 = 2;

/// What the answer of a device means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The next frame may be sent. To a question: the device accepts an identity.
    GoOn,
    /// The device has the identity in its flash.
    Stored,
    /// The device has lost the frames before, such as by a restart: the transfer begins again.
    Again,
    /// The device refuses the identity, with the number of an error code.
    Refused(u16),
}

/// An identity on its way to a device.
#[derive(Debug)]
pub struct Transfer<'a> {
    identity: &'a [u8],
    session: u32,
    number: u16,
}

impl<'a> Transfer<'a> {
    /// Sends the encoded identity; without one, it asks whether the device accepts one. `session` is a random number.
    pub fn new(identity: &'a [u8], session: u32) -> Self {
        // Session 0 is that of a call.
        Self { identity, session: session.max(1), number: 0 }
    }

    /// Appends the frame that is due as it is on the line. It is sent again until its answer comes.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let data = match self.number {
            0 => (self.identity.len() as u16).to_le_bytes().to_vec(), // at most 512
            number => {
                let piece = self.identity.chunks(DATA_MAX).nth(usize::from(number) - 1);
                piece.unwrap_or_default().to_vec()
            }
        };
        Frame { kind: Kind::Provision, session: self.session, number: self.number, data }.encode(to);
    }

    /// Takes a frame of the device; what it means, if it is the answer that is due.
    pub fn take(&mut self, frame: &Frame) -> Option<Answered> {
        let is_due = frame.kind == Kind::Provision && (frame.session, frame.number) == (self.session, self.number);
        let answer = u16::from_le_bytes(frame.data.as_slice().try_into().ok().filter(|_| is_due)?);
        let is_last = usize::from(self.number) * DATA_MAX >= self.identity.len();
        Some(match answer {
            GO_ON if !is_last || self.number == 0 => {
                self.number += 1;
                Answered::GoOn
            }
            STORED if is_last && self.number > 0 => Answered::Stored,
            // Nothing else is an answer at this point, so the two have lost each other.
            GO_ON | STORED | AGAIN => Answered::Again,
            code => Answered::Refused(code),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serial::{Decoder, Found};

    fn sent(transfer: &Transfer<'_>) -> Frame {
        let (mut line, mut decoder) = (Vec::new(), Decoder::default());
        transfer.encode(&mut line);
        let found = line.iter().map(|byte| decoder.take(*byte)).find(|found| *found != Found::Part);
        match found {
            Some(Found::Frame(frame)) => frame,
            other => panic!("{other:?}"),
        }
    }

    fn answer(to: &Frame, code: u16) -> Frame {
        Frame { data: code.to_le_bytes().to_vec(), ..to.clone() }
    }

    #[test]
    fn an_identity_goes_in_pieces_and_only_the_answer_to_the_last_one_ends_it() {
        for size in [1, 127, 128, 129, 256, 512] {
            let identity: Vec<u8> = (0..size).map(|at| at as u8).collect();
            let mut transfer = Transfer::new(&identity, 7);
            let begin = sent(&transfer);
            assert_eq!((begin.number, &begin.data), (0, &(size as u16).to_le_bytes().to_vec()));
            assert_eq!(transfer.take(&answer(&begin, GO_ON)), Some(Answered::GoOn));
            let mut arrived = Vec::<u8>::new();
            loop {
                let piece = sent(&transfer);
                assert_eq!(transfer.take(&answer(&begin, GO_ON)), None, "an old answer");
                arrived.extend(&piece.data);
                if arrived.len() == size {
                    assert_eq!(transfer.take(&answer(&piece, GO_ON)), Some(Answered::Again));
                    assert_eq!(transfer.take(&answer(&piece, STORED)), Some(Answered::Stored));
                    break;
                }
                assert_eq!(transfer.take(&answer(&piece, STORED)), Some(Answered::Again), "not all was sent");
                assert_eq!(transfer.take(&answer(&piece, GO_ON)), Some(Answered::GoOn));
            }
            assert_eq!(arrived, identity);
        }
    }

    #[test]
    fn what_is_no_answer_to_the_frame_is_ignored() {
        let mut transfer = Transfer::new(&[], 0);
        let begin = sent(&transfer);
        assert_eq!((begin.session, &begin.data), (1, &vec![0, 0]));
        for odd in [
            Frame { kind: Kind::Data, ..answer(&begin, GO_ON) },
            Frame { session: 2, ..answer(&begin, GO_ON) },
            Frame { number: 1, ..answer(&begin, GO_ON) },
            Frame { data: vec![0], ..begin.clone() },
        ] {
            assert_eq!(transfer.take(&odd), None);
        }
        assert_eq!(transfer.take(&answer(&begin, 6353)), Some(Answered::Refused(6353)));
        assert_eq!(transfer.take(&answer(&begin, AGAIN)), Some(Answered::Again));
        assert_eq!(transfer.take(&answer(&begin, GO_ON)), Some(Answered::GoOn));
    }
}

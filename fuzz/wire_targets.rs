//! What no bytes from the network may do. Used by the fuzzers and, on the committed corpus, by an ordinary test.

use millrace_wire::{Address, LogName, Name, message_of_type, protocol::*};

const GOLDEN: [&str; 2] = [include_str!("../spec/vectors/wire.json"), include_str!("../spec/vectors/messages.json")];

/// Bytes as they may arrive: refused, or read as messages that, written again, are read as the same.
pub fn frames(input: &[u8]) {
    let mut rest = input;
    while let Ok(Some((frame, used))) = split(rest, FRAME_MAX_BYTES) {
        message(&frame);
        assert!(used >= 4 && used <= rest.len());
        // No cut of a whole frame is taken for one.
        assert_eq!(split(&rest[..used - 1], FRAME_MAX_BYTES).ok().flatten(), None);
        rest = &rest[used..];
    }
}

/// A golden frame, chosen by the first two bytes, with some of its bytes changed: each three bytes say where and to what.
pub fn changed(input: &[u8]) {
    let Some((choice, changes)) = input.split_first_chunk::<2>() else { return };
    let mut bytes = golden(usize::from(u16::from_le_bytes(*choice)));
    for change in changes.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % bytes.len();
        bytes[at] = change[2];
    }
    frames(&bytes);
    // The same with a length that is right.
    let length = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    frames(&bytes);
}

/// Text that may be an address or a name: refused, or it comes back as itself.
pub fn names(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(address) = text.parse::<Address>() {
        assert!(Address::claims(text) && address.peer.port != 0);
        assert_eq!(address.to_string().parse::<Address>().expect("it was just written"), address);
    }
    if let Ok(log) = text.parse::<LogName>() {
        assert!(*log == *text && log.len() <= 255 && !text.split('/').any(|part| part.starts_with('.')));
    }
    if let Ok(name) = text.parse::<Name>() {
        assert!(*name == *text && !text.contains('/'));
    }
}

fn golden(choice: usize) -> Vec<u8> {
    let frames: Vec<&str> = GOLDEN
        .iter()
        .flat_map(|file| file.lines())
        .filter_map(|line| line.rsplit_once("\"hex\": \""))
        .map(|(_, hex)| hex)
        .collect();
    let hex = frames[choice % frames.len()].trim_end_matches(['"', '}', ',']);
    let mut bytes: Vec<u8> =
        (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hexadecimal")).collect();
    bytes.resize(bytes.len().max(5), 0); // Some that must be refused are a length and nothing else.
    bytes
}

fn message(frame: &Frame<'_>) {
    macro_rules! again {
        ($type:ident) => {
            if let Ok(message) = frame.message::<$type>() {
                let mut bytes = Vec::new();
                encode(&mut bytes, frame.heading, &message);
                let (again, used) = split(&bytes, usize::MAX).expect("it was just written").expect("as a whole");
                assert_eq!((again.kind, again.heading, used), (frame.kind, frame.heading, bytes.len()));
                assert_eq!(again.message::<$type>().expect("it was just written"), message);
            }
        };
    }
    message_of_type!(frame.kind, again, ());
}

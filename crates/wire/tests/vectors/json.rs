//! A reader of MessagePack that tells in JSON what it finds, and knows nothing of our messages.

use std::fmt::Write;

pub struct Reader<'b> {
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes }
    }

    /// A frame's body as the members of a JSON object.
    pub fn frame(mut self) -> String {
        let elements = rmp::decode::read_array_len(&mut self.rest).expect("an array") as usize;
        assert!(elements == 5 || elements == 6, "{elements} elements");
        let mut out = String::new();
        for (at, name) in ["type", "request", "hlc", "cause", "message", "slot"].into_iter().take(elements).enumerate()
        {
            write!(out, "{}\"{name}\": ", if at > 0 { ", " } else { "" }).expect("memory takes all");
            self.value(&mut out);
        }
        assert!(self.rest.is_empty(), "bytes follow the frame");
        out
    }

    fn take(&mut self, count: usize) -> &'b [u8] {
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        taken
    }

    fn length(&mut self, bytes: usize) -> usize {
        self.take(bytes).iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
    }

    fn value(&mut self, out: &mut String) {
        let marker = self.take(1)[0];
        match marker {
            0x00..=0x7f => write!(out, "{marker}").expect("memory takes all"),
            0xcc..=0xcf => write!(out, "{}", self.length(1 << (marker - 0xcc))).expect("memory takes all"),
            0xc0 => out.push_str("null"),
            0xc2 | 0xc3 => out.push_str(if marker == 0xc3 { "true" } else { "false" }),
            0xc4..=0xc6 => {
                let length = self.length(1 << (marker - 0xc4));
                write!(out, "{{\"hex\": \"{}\"}}", super::hex(self.take(length))).expect("memory takes all");
            }
            0xa0..=0xbf => self.text(usize::from(marker & 31), out),
            0xd9..=0xdb => {
                let length = self.length(1 << (marker - 0xd9));
                self.text(length, out);
            }
            0x90..=0x9f => self.array(usize::from(marker & 15), out),
            0xdc => {
                let length = self.length(2);
                self.array(length, out);
            }
            0x80..=0x8f => self.map(usize::from(marker & 15), out),
            0xde => {
                let length = self.length(2);
                self.map(length, out);
            }
            _ => panic!("marker {marker:02x} has no place in our messages"),
        }
    }

    fn text(&mut self, length: usize, out: &mut String) {
        let text = std::str::from_utf8(self.take(length)).expect("UTF-8");
        out.push('"');
        for char in text.chars() {
            match char {
                '"' | '\\' => out.extend(['\\', char]),
                '\0'..='\x1f' => write!(out, "\\u{:04x}", char as u32).expect("memory takes all"),
                _ => out.push(char),
            }
        }
        out.push('"');
    }

    fn array(&mut self, length: usize, out: &mut String) {
        out.push('[');
        for at in 0..length {
            out.push_str(if at > 0 { ", " } else { "" });
            self.value(out);
        }
        out.push(']');
    }

    fn map(&mut self, length: usize, out: &mut String) {
        out.push('{');
        for at in 0..length {
            out.push_str(if at > 0 { ", " } else { "" });
            self.value(out);
            out.push_str(": ");
            self.value(out);
        }
        out.push('}');
    }
}

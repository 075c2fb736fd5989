//! The output of a run, limited: the beginning is kept, the rest is counted.

/// Collects at most `max_bytes`; says at the end how much was dropped.
#[derive(Debug)]
pub(crate) struct Output {
    kept: Vec<u8>,
    max_bytes: usize,
    dropped_bytes: u64,
}

impl Output {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { kept: Vec::new(), max_bytes, dropped_bytes: 0 }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let room = self.max_bytes - self.kept.len();
        let (keep, drop) = bytes.split_at(room.min(bytes.len()));
        self.kept.extend_from_slice(keep);
        self.dropped_bytes += drop.len() as u64;
    }

    /// The output so far, for a message about a failure.
    pub(crate) fn kept(&self) -> &[u8] {
        &self.kept
    }

    /// The output of the run that ends here; the collector is empty afterwards.
    ///
    /// The note about what was dropped takes the place of the last bytes kept, so that the bound holds.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut kept = std::mem::take(&mut self.kept);
        if self.dropped_bytes > 0 {
            let note = |dropped: u64| format!("\n[{dropped} more bytes were dropped]\n");
            let room = self.max_bytes.saturating_sub(note(u64::MAX).len());
            let dropped = self.dropped_bytes + kept.len().saturating_sub(room) as u64;
            kept.truncate(room);
            kept.extend_from_slice(&note(dropped).as_bytes()[..note(dropped).len().min(self.max_bytes - kept.len())]);
            self.dropped_bytes = 0;
        }
        kept
    }
}

/// The end of what a process printed, as a message may show it: at most 10 lines and 1000 characters.
pub(crate) fn tail(printed: &[u8]) -> String {
    let text = String::from_utf8_lossy(&printed[printed.len().saturating_sub(4000)..]);
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let last = lines[lines.len().saturating_sub(10)..].join("\n");
    let skip = last.chars().count().saturating_sub(1000);
    last.chars().skip(skip).filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect()
}

/// The beginning of a long message, at most `max_bytes` of it.
pub(crate) fn head(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(max_bytes)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_output_is_kept_as_it_is() {
        let mut output = Output::new(100);
        output.push(b"one ");
        output.push(b"two");
        assert_eq!(output.take(), b"one two");
        assert_eq!(output.take(), b"");
    }

    #[test]
    fn long_output_is_cut_within_its_bound_and_accounts_for_every_byte() {
        for max_bytes in [0, 10, 50, 100, 1000] {
            let mut output = Output::new(max_bytes);
            for _ in 0..500 {
                output.push(b"0123456789");
            }
            let taken = String::from_utf8(output.take()).unwrap();
            assert!(taken.len() <= max_bytes);
            if max_bytes >= 100 {
                let (kept, note) = taken.split_once("\n[").unwrap();
                let dropped: usize = note.split(' ').next().unwrap().parse().unwrap();
                assert_eq!(kept.len() + dropped, 5000);
            }
        }
    }

    #[test]
    fn a_tail_is_the_last_lines_without_control_characters() {
        let printed: String = (0..100).map(|i| format!("line {i}\x1b\n")).collect();
        let tail = tail(printed.as_bytes());
        assert!(tail.starts_with("line 90\n") && tail.ends_with("line 99"), "{tail}");
        assert_eq!(super::tail(&[b'x'; 100_000]).len(), 1000);
    }
}

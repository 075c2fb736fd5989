//! The output of a run, limited: its beginning and its end are kept, what was between them is counted.

use std::collections::VecDeque;

/// Collects at most `max_bytes`; says how much was dropped between the beginning and the end.
#[derive(Debug)]
pub(crate) struct Output {
    head: Vec<u8>,
    /// The newest bytes behind the head.
    tail: VecDeque<u8>,
    max_bytes: usize,
    dropped_bytes: u64,
}

impl Output {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), max_bytes, dropped_bytes: 0 }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let head_max = self.max_bytes / 2;
        let (head, rest) = bytes.split_at((head_max - self.head.len()).min(bytes.len()));
        self.head.extend_from_slice(head);
        let tail_max = self.max_bytes - head_max;
        let (skipped, kept) = rest.split_at(rest.len().saturating_sub(tail_max));
        let over = (self.tail.len() + kept.len()).saturating_sub(tail_max);
        self.tail.drain(..over);
        self.tail.extend(kept);
        self.dropped_bytes += (skipped.len() + over) as u64;
    }

    /// The end of the output so far, for a message about a failure.
    pub(crate) fn last(&self) -> Vec<u8> {
        let (first, second) = self.tail.as_slices();
        // Only an output without a gap continues from the head.
        let head: &[u8] = if self.dropped_bytes == 0 { &self.head } else { &[] };
        [head, first, second].concat()
    }

    /// The output of the run that ends here; the collector is empty afterwards.
    ///
    /// The note about what was dropped takes the place of the last bytes before the gap, so that the bound holds.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let (mut kept, tail) = (std::mem::take(&mut self.head), std::mem::take(&mut self.tail));
        let dropped = std::mem::take(&mut self.dropped_bytes);
        let mut tail = Vec::from(tail);
        if dropped > 0 {
            let note = |dropped: u64| format!("\n[{dropped} bytes were dropped here]\n");
            let room = kept.len().saturating_sub(note(u64::MAX).len());
            let dropped = dropped + (kept.len() - room) as u64;
            let bytes = kept.len();
            kept.truncate(room);
            kept.extend_from_slice(&note(dropped).as_bytes()[..note(dropped).len().min(bytes - room)]);
            // A text does not begin in the middle of a character.
            let begins = tail.iter().take(4).position(|byte| byte & 0xC0 != 0x80).unwrap_or(0);
            tail.drain(..begins);
        }
        kept.append(&mut tail);
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
                let (head, rest) = taken.split_once("\n[").unwrap();
                let (note, tail) = rest.split_once("]\n").unwrap();
                let dropped: usize = note.split(' ').next().unwrap().parse().unwrap();
                assert_eq!(head.len() + dropped + tail.len(), 5000);
                assert!(
                    tail.ends_with("0123456789") && (max_bytes == 100 || head.starts_with("0123456789")),
                    "{taken}"
                );
            }
        }
    }

    #[test]
    fn what_was_printed_last_is_kept_however_it_came() {
        for size in [1, 7, 4096, 1 << 20] {
            let mut output = Output::new(1000);
            let printed: Vec<u8> = (0..20_000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
            printed.chunks(size).for_each(|bytes| output.push(bytes));
            assert!(tail(&output.last()).ends_with("line 19998\nline 19999"), "{size}");
            let taken = String::from_utf8(output.take()).unwrap();
            assert!(taken.starts_with("line 0\n") && taken.ends_with("line 19999\n"), "{size}: {taken}");
            assert_eq!(output.take(), b"", "nothing is left for the next run");
        }
        let mut output = Output::new(100);
        output.push("ä".repeat(500).as_bytes());
        let taken = String::from_utf8_lossy(&output.take()).into_owned();
        assert!(
            taken.ends_with("]\n".to_string().as_str()) || taken.rsplit('\n').next().unwrap().chars().all(|c| c == 'ä')
        );
    }

    #[test]
    fn a_tail_is_the_last_lines_without_control_characters() {
        let printed: String = (0..100).map(|i| format!("line {i}\x1b\n")).collect();
        let tail = tail(printed.as_bytes());
        assert!(tail.starts_with("line 90\n") && tail.ends_with("line 99"), "{tail}");
        assert_eq!(super::tail(&[b'x'; 100_000]).len(), 1000);
    }
}

//! The result of a run: what its function returned. It is a part of the run's DONE.

/// The maximum size of a result. A larger one is not kept.
pub const RESULT_MAX_BYTES: usize = 1 << 20;

/// What the bytes of a result are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ResultKind {
    /// Text in UTF-8.
    Text = 0,
    /// Any bytes.
    Bytes = 1,
    /// JSON in UTF-8.
    Json = 2,
    /// The function returned something that cannot be a result; the bytes are the reason, as text.
    Dropped = 3,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunResult {
    /// What it is.
    pub kind: ResultKind,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl RunResult {
    /// The result that a DONE has; `None` if it has none, or one of a kind that a later version added.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let (kind, bytes) = bytes.split_first()?;
        let kind = match kind {
            0 => ResultKind::Text,
            1 => ResultKind::Bytes,
            2 => ResultKind::Json,
            3 => ResultKind::Dropped,
            _ => return None,
        };
        Some(Self { kind, bytes: bytes.into() })
    }

    /// The result that a function gave; the reason, if it cannot be kept.
    pub fn admitted(bytes: &[u8]) -> Self {
        let dropped = |reason: String| Self { kind: ResultKind::Dropped, bytes: reason.into_bytes() };
        match Self::of(bytes) {
            None => dropped("the result is of an unknown kind".into()),
            Some(Self { bytes, .. }) if bytes.len() > RESULT_MAX_BYTES => {
                dropped(format!("the result has {} bytes; the limit is {RESULT_MAX_BYTES}", bytes.len()))
            }
            Some(Self { kind, bytes }) if kind != ResultKind::Bytes && std::str::from_utf8(&bytes).is_err() => {
                dropped("the result is not UTF-8".into())
            }
            Some(result) => result,
        }
    }

    /// The same as a DONE has it.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&[self.kind as u8], &*self.bytes].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_a_result_leaves_the_reason() {
        let kept = RunResult { kind: ResultKind::Json, bytes: b"{}".into() };
        assert_eq!(RunResult::of(&kept.to_bytes()), Some(kept.clone()));
        assert_eq!(RunResult::admitted(&kept.to_bytes()), kept);
        assert_eq!(RunResult::of(b""), None);
        let large = vec![1; RESULT_MAX_BYTES + 2];
        for (bytes, reason) in [(&b"\x07x"[..], "unknown kind"), (b"\x00\xff", "not UTF-8"), (&large, "the limit is")] {
            let dropped = RunResult::admitted(bytes);
            assert_eq!(dropped.kind, ResultKind::Dropped);
            assert!(String::from_utf8(dropped.bytes).unwrap().contains(reason), "{reason}");
        }
        assert_eq!(RunResult::admitted(&large[..=RESULT_MAX_BYTES]).kind, ResultKind::Bytes);
    }
}

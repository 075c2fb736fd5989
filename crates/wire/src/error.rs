//! One error type for the whole project: a stable code and the details.
//!
//! The remedy is not part of the error; it belongs to the code and is looked up when the error is shown.

use std::{fmt, num::NonZeroU32};

include!(concat!(env!("OUT_DIR"), "/codes.rs"));

/// The properties of a code, from `spec/errors.toml`.
struct Row {
    code: Code,
    id: &'static str,
    cause: &'static str,
    remedy: &'static str,
    remedy_http: &'static str,
    remedy_python: &'static str,
    kind: ErrorKind,
    http: u16,
    exit: u8,
    retry_ms: Option<u32>,
    transient: Option<Transient>,
    reveals: bool,
    lost: bool,
}

/// Why the same operation may succeed later although nobody changes the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transient {
    /// The disk, or the journal on it, refused to write.
    Disk,
    /// Something is full that empties by itself.
    Room,
}

/// The class of an error code, to handle several codes alike; in Python each is a class of exceptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request is invalid.
    Invalid,
    /// Not permitted.
    Denied,
    /// No such log, record, function, run, namespace or peer.
    NotFound,
    /// It exists already, or is in use.
    Conflict,
    /// It existed, and is no longer kept.
    Gone,
    /// Too much is pending or in use.
    Busy,
    /// It did not happen within the time given.
    TimedOut,
    /// The host cannot be reached, or went away.
    Unavailable,
    /// A function's code cannot be used, or failed.
    Function,
    /// The disk is full, or refused.
    Storage,
    /// Bytes are not what was written.
    Damaged,
    /// A package, or a part of one, is not installed.
    Missing,
}

impl Code {
    fn row(self) -> &'static Row {
        // The enum and the table are generated from one map in one order.
        let row = &ROWS[self as usize];
        debug_assert_eq!(row.code, self);
        row
    }

    /// The code as users see it: `MR` and four digits.
    pub fn id(self) -> &'static str {
        self.row().id
    }

    /// Why this error arises, in general.
    pub fn cause(self) -> &'static str {
        self.row().cause
    }

    /// What the user can do about it.
    pub fn remedy(self) -> &'static str {
        self.row().remedy
    }

    /// The same for a program that speaks HTTP.
    pub fn remedy_http(self) -> &'static str {
        self.row().remedy_http
    }

    /// The same for a program in Python.
    pub fn remedy_python(self) -> &'static str {
        self.row().remedy_python
    }

    /// An error with this code; `detail` says what was wrong in this case, without a full stop.
    pub fn error(self, detail: impl Into<String>) -> Error {
        Error { code: self, retry_after_ms: None, detail: detail.into().into_boxed_str() }
    }

    /// The kind of the error.
    pub fn kind(self) -> ErrorKind {
        self.row().kind
    }

    /// The status of an HTTP answer with this error.
    pub fn http_status(self) -> u16 {
        self.row().http
    }

    /// The exit code of a command that fails with it.
    pub fn exit_code(self) -> u8 {
        self.row().exit
    }

    /// Why the same operation, tried again, may succeed.
    pub fn transient(self) -> Option<Transient> {
        self.row().transient
    }

    /// Whether the error tells something about the state of a namespace. If it does not, it concerns the request alone, a moment that is
    /// over when the error arrives, or a journal that makes nothing durable any longer.
    pub fn reveals(self) -> bool {
        self.row().reveals
    }

    /// Whether after this error another connection may help.
    pub fn is_lost(self) -> bool {
        self.row().lost
    }

    /// The default time after which to retry, if waiting alone may help.
    fn retry_after_ms(self) -> Option<u32> {
        self.row().retry_ms
    }

    /// The code whose id is `id`, such as `"MR1001"`.
    pub fn from_id(id: &str) -> Option<Code> {
        ROWS.iter().find(|row| row.id == id).map(|row| row.code)
    }
}

/// Minimum retry time of a refusal for lack of room.
pub const RETRY_AFTER_MS: u32 = 100;
/// Every code with its id, cause and remedy, in the order of their ids.
pub fn catalogue() -> impl Iterator<Item = (Code, &'static str, &'static str, &'static str)> {
    ROWS.iter().map(|row| (row.code, row.id, row.cause, row.remedy))
}

/// An error: a stable code, and the details of this case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    code: Code,
    retry_after_ms: Option<NonZeroU32>,
    detail: Box<str>,
}

/// The result of anything that can fail in Millrace.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The stable code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The description of this case.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The same error seen from further out: `context` goes before the detail.
    pub fn within(self, context: impl fmt::Display) -> Error {
        Error { retry_after_ms: self.retry_after_ms, ..self.code.error(format!("{context}: {}", self.detail)) }
    }

    /// The same error, with when it makes sense to try again; 0 says nothing about it.
    pub fn retry_after(self, after_ms: u32) -> Self {
        Error { retry_after_ms: NonZeroU32::new(after_ms), ..self }
    }

    /// The time after which to retry, if waiting alone may help: from the refusal, or the default of the code.
    pub fn retry_after_ms(&self) -> Option<u32> {
        self.retry_after_ms.map(NonZeroU32::get).or(self.code.retry_after_ms())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.id(), self.detail)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_finds_its_own_row_and_says_what_to_do() {
        for (code, id, cause, remedy) in catalogue() {
            assert_eq!(code.id(), id);
            assert_eq!(Code::from_id(id), Some(code));
            for text in [cause, remedy] {
                assert!(text.ends_with('.'), "{id}: `{text}` is not a sentence");
            }
            assert!((400..600).contains(&code.http_status()), "{id} is answered with {}", code.http_status());
            assert!([1, 2, 74, 75].contains(&code.exit_code()), "{id} ends a command with {}", code.exit_code());
        }
    }

    /// A code that is added to the catalogue without a thought about these keys is in none of the lists.
    #[test]
    fn the_lists_of_codes_are_those_that_were_meant() {
        use Code::*;
        let codes = || catalogue().map(|(code, ..)| code);
        let disk = [ReadOnly, DiskFull, Io, JournalFull, AppendUncertain, JournalBlocked];
        let room = [
            Busy,
            DatabaseBacklog,
            DeviceCommandsFull,
            RoomExhausted,
            OutboxFull,
            PublishBufferFull,
            RepairWaits,
            MountBusy,
        ];
        let of_request = [
            BatchTooLarge,
            HistoryInvalid,
            AddressInvalid,
            NotAdmitted,
            LogInternal,
            KeyInvalid,
            HttpPathUnknown,
            HttpParameterInvalid,
            LoginCodeRefused,
            PageKeyWrong,
            ProtocolElsewhere,
            HttpBodyTooLong,
        ];
        let of_moment = [
            MountBusy,
            Busy,
            OutboxFull,
            PublishBufferFull,
            RoomExhausted,
            ClockAhead,
            WaitTimeout,
            JournalBlocked,
            WritesWaiting,
            DatabaseBacklog,
            // Who asks a device may know that it is there.
            DeviceAsleep,
            DeviceNotAskable,
            DeviceNoAnswer,
            DeviceBusy,
        ];
        let of_disk =
            [DiskFull, JournalFull, ReadOnly, Io, AppendUncertain, FlushFailed, JournalPoisoned, ForkedHandle];
        let lost = [
            ConnectionLost,
            PeerSilent,
            ConnectionIdle,
            HostStopping,
            ConnectFailed,
            ConnectTimeout,
            ConnectionsExhausted,
        ];
        for code in codes() {
            let transient = match code {
                code if disk.contains(&code) => Some(Transient::Disk),
                code if room.contains(&code) => Some(Transient::Room),
                _ => None,
            };
            assert_eq!(code.transient(), transient, "{code:?}");
            let tells_nothing = of_request.contains(&code)
                || of_moment.contains(&code)
                || of_disk.contains(&code)
                || code.id().starts_with("MR1");
            assert_eq!(code.reveals(), !tells_nothing, "{code:?}");
            assert_eq!(code.is_lost(), lost.contains(&code), "{code:?}");
        }
    }

    #[test]
    fn who_refuses_says_when_to_come_again() {
        assert_eq!(Code::Busy.error("full").retry_after_ms(), Some(RETRY_AFTER_MS));
        assert_eq!(Code::Busy.error("full").retry_after(170).within("log 'a'").retry_after_ms(), Some(170));
        assert_eq!(Code::LogNotFound.error("no log 'a'").retry_after_ms(), None);
    }

    #[test]
    fn context_goes_before_the_detail_and_keeps_the_code() {
        let error = Code::LogNotFound.error("no log 'a'").within("function 'f'");
        assert_eq!(error.to_string(), "MR2101: function 'f': no log 'a'");
    }
}

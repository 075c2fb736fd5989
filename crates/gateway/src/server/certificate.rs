//! A certificate of the operator's, such as an ACME client keeps: read from files, checked, and read again when they change.

use millrace_client::secure::tls::provider;
use millrace_node::secrets::now_s;
use millrace_wire::{Code, Error, Result};
use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use zeroize::Zeroizing;

/// No such file is longer.
const FILE_MAX_BYTES: u64 = 1 << 20;
/// The mode bits that a key must not have: all but the owner's, and read permission of the group.
const KEY_MODE_FORBIDDEN: u32 = 0o037;

/// How often files that were wrong are read again although they seem unchanged: a certificate becomes valid, a disk answers.
const RETRY_EVERY: Duration = Duration::from_secs(60);

/// Operators are warned when a fifth of a certificate's time is left, and at most so long before its end. ACME clients renew earlier.
const WARN_PART: i64 = 5;
const WARN_MAX_S: i64 = 14 * 86_400;
/// A warning is repeated after this.
const WARN_EVERY_S: i64 = 86_400;

/// Identifies the state of a file: device, inode, length, times of modification and change, owner and mode.
type Stamp = ([u64; 3], [i64; 4], [u32; 2]);

/// A certificate and its key, from two files.
#[derive(Debug)]
pub struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    certified: Arc<CertifiedKey>,
    /// From when to when it is valid, in seconds since 1970.
    valid: (i64, i64),
    /// When its end was last warned of.
    warned_s: Option<i64>,
    stamps: [Option<Stamp>; 2],
    /// The error of the last attempt to read the files.
    failed: Option<Failed>,
}

#[derive(Debug)]
struct Failed {
    at: Instant,
    reported: (Code, String),
}

fn unusable(path: &Path, why: impl std::fmt::Display) -> Error {
    Code::CertificateUnusable.error(format!("'{}': {why}", path.display()))
}

fn stamp(path: &Path) -> Option<Stamp> {
    let about = fs::metadata(path).ok()?;
    let times = [about.mtime(), about.mtime_nsec(), about.ctime(), about.ctime_nsec()];
    Some(([about.dev(), about.ino(), about.len()], times, [about.uid(), about.mode()]))
}

fn read(path: &Path, check: impl Fn(&fs::Metadata) -> Result<()>) -> Result<Vec<u8>> {
    let file = File::open(path).map_err(|error| unusable(path, error))?;
    let about = file.metadata().map_err(|error| unusable(path, error))?;
    if !about.is_file() {
        return Err(unusable(path, "it is not a regular file"));
    }
    check(&about)?;
    let mut bytes = Vec::new();
    file.take(FILE_MAX_BYTES).read_to_end(&mut bytes).map_err(|error| unusable(path, error))?;
    Ok(bytes)
}

fn shown(second: i64) -> String {
    jiff::Timestamp::from_second(second).map_or_else(|_| second.to_string(), |at| at.to_string())
}

/// The certificate and its key, and from when to when it is valid.
fn load(chain: &Path, key: &Path) -> Result<(CertifiedKey, (i64, i64))> {
    let text = read(chain, |_| Ok(()))?;
    let certificates: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let certificates = certificates.map_err(|error| unusable(chain, error))?;
    let Some(first) = certificates.first() else { return Err(unusable(chain, "it contains no certificate in PEM")) };
    let (from, until) = validity(first)
        .ok_or_else(|| unusable(chain, "the period of validity of the first certificate cannot be read"))?;
    let now = i64::from(now_s());
    if now > until || now < from {
        let detail = format!("'{}' is valid from {} to {}", chain.display(), shown(from), shown(until));
        return Err(Code::CertificateExpired.error(detail));
    }
    let text = Zeroizing::new(read(key, |about| {
        let own = rustix::process::geteuid().as_raw();
        if about.mode() & KEY_MODE_FORBIDDEN != 0 || !(about.uid() == own || about.uid() == 0) {
            let (mode, user) = (about.mode() & 0o7777, about.uid());
            let detail = format!("'{}' belongs to user {user} and has mode {mode:04o}", key.display());
            return Err(Code::CertificateKeyExposed.error(detail));
        }
        Ok(())
    })?);
    let mut private = PrivateKeyDer::from_pem_slice(&text).map_err(|error| unusable(key, error))?;
    let completed = with_public_key(private.secret_der(), first);
    if let Some(completed) = &completed {
        private = PrivatePkcs8KeyDer::from(completed.to_vec()).into();
    }
    let certified = CertifiedKey::from_der(certificates, private, &provider()).map_err(|error| {
        // A completed key has the certificate's public key, so it is refused if the two do not belong together.
        if completed.is_some() || matches!(error, rustls::Error::InconsistentKeys(_)) {
            let detail =
                format!("the key in '{}' is not that of the certificate in '{}'", key.display(), chain.display());
            return Code::CertificateKeyWrong.error(detail);
        }
        unusable(key, error)
    })?;
    Ok((certified, (from, until)))
}

impl Certificate {
    /// The certificate chain and the key in these files, in PEM.
    ///
    /// # Errors
    ///
    /// They are not that, do not belong together, are not valid now, or the key is not kept secret.
    pub fn open(chain: &Path, key: &Path) -> Result<Self> {
        let stamps = [stamp(chain), stamp(key)];
        let (certified, valid) = load(chain, key)?;
        let certified = Arc::new(certified);
        let current = Mutex::new(Current { certified, valid, warned_s: None, stamps, failed: None });
        Ok(Self { chain: chain.to_owned(), key: key.to_owned(), current })
    }

    /// Reads the files again if they have changed, or from time to time while they have errors. Returns whether the new files are in use.
    /// An error is reported once, and the previous certificate stays in use.
    pub fn refresh(&self) -> Result<bool> {
        self.refresh_after(RETRY_EVERY)
    }

    fn refresh_after(&self, retry: Duration) -> Result<bool> {
        let stamps = [stamp(&self.chain), stamp(&self.key)];
        let is_current = |current: &Current| {
            current.stamps == stamps && current.failed.as_ref().is_none_or(|failed| failed.at.elapsed() < retry)
        };
        if is_current(&self.current()) {
            return Ok(false);
        }
        let loaded = load(&self.chain, &self.key);
        let mut current = self.current();
        current.stamps = stamps;
        let error = match loaded {
            Ok((certified, valid)) => {
                (current.certified, current.valid, current.warned_s) = (Arc::new(certified), valid, None);
                current.failed = None;
                return Ok(true);
            }
            Err(error) => error,
        };
        let reported = (error.code(), error.detail().to_owned());
        let before = current.failed.replace(Failed { at: Instant::now(), reported: reported.clone() });
        if before.is_some_and(|before| before.reported == reported) { Ok(false) } else { Err(error) }
    }

    /// When the certificate in use expires, in seconds since 1970.
    pub fn until_s(&self) -> i64 {
        self.current().valid.1
    }

    /// The warning that the certificate in use expires soon, or has expired, and whether it is to be logged: once a day.
    pub fn warning(&self, now_s: i64) -> Option<(Error, bool)> {
        let mut current = self.current();
        let (from, until) = current.valid;
        // The text stays the same from one look to the next.
        if now_s < until - WARN_MAX_S.min((until - from) / WARN_PART) {
            return None;
        }
        let is_due = current.warned_s.is_none_or(|warned| now_s - warned >= WARN_EVERY_S);
        if is_due {
            current.warned_s = Some(now_s);
        }
        let (code, verb) =
            if now_s > until { (Code::CertificateExpired, "expired") } else { (Code::CertificateExpiring, "expires") };
        let detail = format!("the certificate in '{}' {verb} at {}", self.chain.display(), shown(until));
        Some((code.error(detail), is_due))
    }

    pub(super) fn certified(&self) -> Arc<CertifiedKey> {
        self.current().certified.clone()
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The next value of DER: its tag, what it holds, and what follows.
fn value(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let ([tag, first], rest) = der.split_first_chunk()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => (usize::from(u16::from_be_bytes(*rest.first_chunk()?)), &rest[2..]),
        _ => return None,
    };
    let (held, behind) = rest.split_at_checked(length)?;
    Some((*tag, held, behind))
}

/// A value of DER with its tag and length.
fn encoded(tag: u8, parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut bytes = Zeroizing::new(Vec::with_capacity(length + 4));
    bytes.push(tag);
    match length {
        0..=0x7f => bytes.push(length as u8),
        0x80..=0xff => bytes.extend_from_slice(&[0x81, length as u8]),
        _ => bytes.extend_from_slice(&[&[0x82][..], &(length as u16).to_be_bytes()].concat()), // no key is longer
    }
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

/// An elliptic curve key that lacks its public key, completed with that of the certificate, in PKCS #8; `None` for all others. The
/// public key is optional in RFC 5915, and the cryptographic library requires it.
fn with_public_key(key: &[u8], certificate: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    const INTEGER: u8 = 0x02;
    const BITS: u8 = 0x03;
    const OCTETS: u8 = 0x04;
    const SEQUENCE: u8 = 0x30;
    const PUBLIC: u8 = 0xa1;
    /// The object identifier 1.2.840.10045.2.1.
    const ELLIPTIC: &[u8] = &[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
    let (_, subject_key, _) = value(after_issuer(certificate)?.nth(2)?)?;
    let (_, algorithm, point) = value(subject_key)?;
    if !algorithm.starts_with(ELLIPTIC) || point.first() != Some(&BITS) {
        return None;
    }
    let (_, mut fields, _) = value(key)?;
    let (_, version, rest) = value(fields)?;
    if version == [0] {
        // PKCS #8: the algorithm, then the key of RFC 5915 in a string.
        let (_, _, rest) = value(rest)?;
        let (_, wrapped, _) = value(rest)?;
        (_, fields, _) = value(wrapped)?;
    }
    let (_, [1], rest) = value(fields)? else { return None };
    let (OCTETS, secret, mut rest) = value(rest)? else { return None };
    while !rest.is_empty() {
        let (tag, _, next) = value(rest)?;
        if tag == PUBLIC {
            return None;
        }
        rest = next;
    }
    let secret = encoded(OCTETS, &[secret]);
    let public = encoded(PUBLIC, &[point]);
    let own = encoded(SEQUENCE, &[&[INTEGER, 1, 1], &secret, &public]);
    let own = encoded(OCTETS, &[&own]);
    let algorithm = encoded(SEQUENCE, &[algorithm]);
    Some(encoded(SEQUENCE, &[&[INTEGER, 1, 0], &algorithm, &own]))
}

/// The fields of a certificate behind its issuer, each with all that follow: validity, subject, public key (RFC 5280, section 4.1).
fn after_issuer(certificate: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    const VERSION: u8 = 0xa0;
    let (_, certificate, _) = value(certificate)?;
    let (_, mut fields, _) = value(certificate)?;
    if value(fields)?.0 == VERSION {
        fields = value(fields)?.2;
    }
    // Serial number, algorithm and issuer precede them.
    for _ in 0..3 {
        fields = value(fields)?.2;
    }
    Some(std::iter::successors(Some(fields), |fields| value(fields).map(|(_, _, next)| next)))
}

/// From when to when a certificate is valid, in seconds since 1970.
fn validity(certificate: &[u8]) -> Option<(i64, i64)> {
    let (_, times, _) = value(after_issuer(certificate)?.next()?)?;
    let (tag, from, times) = value(times)?;
    let (last_tag, until, _) = value(times)?;
    Some((time(tag, from)?, time(last_tag, until)?))
}

/// `YYMMDDHHMMSSZ`, or the same with a year of four digits.
fn time(tag: u8, text: &[u8]) -> Option<i64> {
    const UTC: u8 = 0x17;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let full = match tag {
        UTC if text < "50" => format!("20{text}"),
        UTC => format!("19{text}"),
        _ => text.to_owned(),
    };
    let at = jiff::civil::DateTime::strptime("%Y%m%d%H%M%S", &full).ok()?;
    Some(at.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_node::secrets::HostKey;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn times_of_certificates_are_read() {
        assert_eq!(time(0x17, b"700101000000Z"), Some(0));
        assert_eq!(time(0x17, b"491231235959Z"), Some(2_524_607_999));
        assert_eq!(time(0x18, b"20500101000000Z"), Some(2_524_608_000));
        for text in [&b"7001010000Z"[..], b"700101000000", b"701301000000Z", b"\xff", b""] {
            assert_eq!(time(0x17, text), None, "{text:?}");
        }
        let made = HostKey::generate().unwrap().certificate;
        let (from, until) = validity(&made).unwrap();
        assert!(from < until);
        for cut in 0..60 {
            assert_eq!(validity(&made[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn the_end_of_a_certificate_is_warned_of_once_a_day() {
        const DAY: i64 = 86_400;
        let dir = tempfile::tempdir().unwrap();
        let (chain, key) = (dir.path().join("chain.pem"), dir.path().join("key.pem"));
        let own = HostKey::generate().unwrap();
        fs::write(&chain, pem("CERTIFICATE", &own.certificate)).unwrap();
        fs::write(&key, pem("PRIVATE KEY", &own.key)).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let opened = Certificate::open(&chain, &key).unwrap();
        // Valid for ninety days, as most that ACME clients get.
        opened.current().valid = (0, 90 * DAY);
        let warning = |now| opened.warning(now).map(|(error, is_due)| (error.code(), is_due));
        assert_eq!(opened.until_s(), 90 * DAY);
        assert_eq!((warning(60 * DAY), warning(76 * DAY - 1)), (None, None));
        assert_eq!(warning(76 * DAY), Some((Code::CertificateExpiring, true)));
        assert_eq!(warning(76 * DAY + 2), Some((Code::CertificateExpiring, false)));
        assert_eq!(warning(77 * DAY), Some((Code::CertificateExpiring, true)));
        assert_eq!(warning(90 * DAY + 1), Some((Code::CertificateExpired, true)));
        // Of one that is valid for six days, a fifth is left.
        opened.current().valid = (0, 6 * DAY);
        assert_eq!(warning(4 * DAY), None);
        let (error, _) = opened.warning(5 * DAY).unwrap();
        assert!(error.detail().ends_with("expires at 1970-01-07T00:00:00Z"), "{error}");
    }

    /// The text of a key and its certificate.
    fn pem(label: &str, der: &[u8]) -> String {
        use base64::{Engine, prelude::BASE64_STANDARD};
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64_STANDARD.encode(der))
    }

    #[test]
    fn a_key_without_its_public_key_is_completed_from_the_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let (chain, key) = (dir.path().join("chain.pem"), dir.path().join("key.pem"));
        let (own, other) = (HostKey::generate().unwrap(), HostKey::generate().unwrap());
        fs::write(&chain, pem("CERTIFICATE", &own.certificate)).unwrap();
        // As `openssl ec -no_public` writes it, plain and in PKCS #8.
        let (_, fields, _) = value(&own.key).unwrap();
        let (_, _, fields) = value(fields).unwrap();
        let (_, algorithm, fields) = value(fields).unwrap();
        let secret = |key: &[u8]| {
            let at = key.windows(2).position(|bytes| bytes == [0x04, 0x20]).unwrap();
            key[at..at + 34].to_vec()
        };
        let (_, curve) = algorithm.split_at(9);
        let bare = |secret: &[u8]| encoded(0x30, &[&[2, 1, 1], secret, &encoded(0xa0, &[curve])]).to_vec();
        let wrapped = |secret: &[u8]| {
            let own = encoded(0x04, &[&bare(secret)]);
            encoded(0x30, &[&[2, 1, 0], &encoded(0x30, &[algorithm]), &own]).to_vec()
        };
        let (own, other) = (secret(fields), secret(&other.key));
        let opened = |label, der: &[u8]| {
            fs::write(&key, pem(label, der)).unwrap();
            fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
            Certificate::open(&chain, &key).map(drop).map_err(|error| error.code())
        };
        assert_eq!(opened("PRIVATE KEY", &wrapped(&own)), Ok(()));
        assert_eq!(opened("EC PRIVATE KEY", &bare(&own)), Ok(()));
        assert_eq!(opened("PRIVATE KEY", &wrapped(&other)), Err(Code::CertificateKeyWrong));
        let whole = wrapped(&own);
        for cut in 0..whole.len() {
            assert!(opened("PRIVATE KEY", &whole[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn files_that_change_are_read_again_and_wrong_ones_are_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let (chain, key) = (dir.path().join("chain.pem"), dir.path().join("key.pem"));
        let write = |own: &HostKey, other: &HostKey| {
            fs::write(&chain, pem("CERTIFICATE", &own.certificate)).unwrap();
            // Another file, so that it is noticed however coarse the clock of the file system is.
            let next = dir.path().join("next");
            fs::write(&next, pem("PRIVATE KEY", &other.key)).unwrap();
            fs::set_permissions(&next, fs::Permissions::from_mode(0o640)).unwrap();
            fs::rename(&next, &key).unwrap();
        };
        let (one, two) = (HostKey::generate().unwrap(), HostKey::generate().unwrap());
        let code = |chain: &Path| Certificate::open(chain, &key).map(drop).unwrap_err().code();
        assert_eq!(code(&chain), Code::CertificateUnusable);
        write(&one, &two);
        assert_eq!(code(&chain), Code::CertificateKeyWrong);
        write(&one, &one);
        let opened = Certificate::open(&chain, &key).unwrap();
        let shown = || opened.certified().cert[0].to_vec();
        assert_eq!((opened.refresh().unwrap(), shown()), (false, one.certificate.clone()));
        write(&two, &one);
        assert_eq!(opened.refresh().unwrap_err().code(), Code::CertificateKeyWrong);
        assert_eq!((opened.refresh().unwrap(), shown()), (false, one.certificate.clone()), "it is told once");
        write(&two, &two);
        assert_eq!((opened.refresh().unwrap(), shown()), (true, two.certificate.clone()));
        // What the remedy says is noticed, although the content stays.
        let chmod = |mode| fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        write(&one, &one);
        chmod(0o644);
        assert_eq!(opened.refresh().unwrap_err().code(), Code::CertificateKeyExposed);
        chmod(0o600);
        assert_eq!((opened.refresh().unwrap(), shown()), (true, one.certificate.clone()));
        // What was wrong for another reason than the files' is tried again after a while, and told once.
        write(&two, &one);
        assert_eq!(opened.refresh().unwrap_err().code(), Code::CertificateKeyWrong);
        assert!(!opened.refresh_after(Duration::ZERO).unwrap());
        write(&two, &two);
        opened.current().stamps = [stamp(&chain), stamp(&key)];
        assert_eq!((opened.refresh().unwrap(), shown()), (false, one.certificate.clone()));
        assert_eq!((opened.refresh_after(Duration::ZERO).unwrap(), shown()), (true, two.certificate.clone()));
        assert!(!opened.refresh_after(Duration::ZERO).unwrap(), "it is right");
        for mode in [0o644, 0o604, 0o660, 0o602] {
            fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(code(&chain), Code::CertificateKeyExposed, "{mode:o}");
        }
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(code(&key), Code::CertificateUnusable, "it is no certificate");
    }
}

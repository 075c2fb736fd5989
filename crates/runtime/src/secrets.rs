//! Secrets of a function: files that only its processes can read; their values are masked in everything that is reported of its runs.
//!
//! No argument and no variable contains a value; `MILLRACE_SECRETS` names the directory of the files.

use crate::{
    Code, Completion, Error, Executor, Outcome, Progress, Rest, Result, Run, StepCalls, StepWork, Stepper, Watch,
    child::Scratch,
};
use rustix::fs::MemfdFlags;
use std::{
    collections::HashSet,
    fmt,
    fs::{self, File},
    io::{self, Read, Seek, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{OpenOptionsExt, PermissionsExt, fchown},
    },
    path::Path,
    sync::Arc,
    time::Instant,
};
use zeroize::Zeroizing;

/// A value, which is overwritten when it is dropped.
pub type SecretBytes = Zeroizing<Vec<u8>>;

/// The variable that says in which directory a process finds its secrets.
pub(crate) const VARIABLE: &str = "MILLRACE_SECRETS";
/// A secret is readable only for its function, and writable for nobody.
const MODE: u32 = 0o400;
/// No longer list is taken from a host.
const LIST_MAX_BYTES: u64 = 4 << 20;
/// A part of a value of this length is masked as well, because output may have been cut in the middle of a value.
const PART_BYTES: usize = 8;
const MASK: &[u8] = b"***";

/// The secrets of one function, by name.
#[derive(Default, PartialEq, Eq)]
pub struct Secrets(Vec<(String, SecretBytes)>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl Secrets {
    /// These, whose names are good names of files.
    pub fn new(values: Vec<(String, SecretBytes)>) -> Self {
        Self(values)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..])
    }

    /// All of them in a file in memory, for a process that has a right to them.
    pub(crate) fn hand_over(&self) -> Result<OwnedFd> {
        let failed = |error: io::Error| Code::SpawnFailed.error(format!("cannot hand secrets over: {error}"));
        let memory = rustix::fs::memfd_create("secrets", MemfdFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
        let mut file = File::from(memory);
        let write = |file: &mut File| {
            for (name, value) in &self.0 {
                for part in [name.as_bytes(), &value[..]] {
                    let length = u32::try_from(part.len()).map_err(io::Error::other)?;
                    file.write_all(&length.to_le_bytes())?;
                    file.write_all(part)?;
                }
            }
            file.rewind()
        };
        write(&mut file).map_err(failed)?;
        Ok(file.into())
    }

    /// The result of [`Secrets::hand_over`].
    pub(crate) fn take_over(from: OwnedFd) -> io::Result<Self> {
        let file = File::from(from);
        let length = file.metadata()?.len().min(LIST_MAX_BYTES);
        let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(length).unwrap_or(0)));
        file.take(length).read_to_end(&mut bytes)?;
        let (mut rest, mut values) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            let name = String::from_utf8(part(&mut rest)?.to_vec()).map_err(io::Error::other)?;
            values.push((name, Zeroizing::new(part(&mut rest)?.to_vec())));
        }
        Ok(Self(values))
    }

    /// Writes each to a file of its own, which belongs to this user if no other is named.
    pub(crate) fn write_to(&self, dir: &Path, owner: Option<u32>) -> io::Result<()> {
        for (name, value) in &self.0 {
            let path = dir.join(name);
            let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(value)?;
            file.set_permissions(fs::Permissions::from_mode(MODE))?;
            if owner.is_some() {
                fchown(&file, owner, owner)?;
            }
        }
        Ok(())
    }

    /// The text, with what is secret in it replaced.
    pub fn mask(&self, text: Vec<u8>) -> Vec<u8> {
        let mut hidden = vec![false; text.len()];
        for (_, value) in &self.0 {
            // A line end after a key is no part of it.
            let value = value.trim_ascii();
            let part = value.len().min(PART_BYTES);
            if part == 0 || text.len() < part {
                continue;
            }
            let parts: HashSet<&[u8]> = value.windows(part).collect();
            for (at, window) in text.windows(part).enumerate() {
                if parts.contains(window) {
                    hidden[at..at + part].fill(true);
                }
            }
        }
        if !hidden.contains(&true) {
            return text;
        }
        let mut masked = Vec::with_capacity(text.len());
        for (at, byte) in text.iter().enumerate() {
            match (hidden[at], at > 0 && hidden[at - 1]) {
                (false, _) => masked.push(*byte),
                (true, false) => masked.extend_from_slice(MASK),
                (true, true) => {}
            }
        }
        // The mask of a very short value is longer than it.
        masked.truncate(text.len());
        masked
    }

    /// The same for an error with output of a function.
    pub fn mask_error(&self, error: Error) -> Error {
        let detail = self.mask(error.detail().as_bytes().to_vec());
        if detail == error.detail().as_bytes() { error } else { error.code().error(String::from_utf8_lossy(&detail)) }
    }

    fn mask_completion(&self, completion: Completion) -> Completion {
        let outcome = match completion.outcome {
            Outcome::Failed(error) => Outcome::Failed(self.mask_error(error)),
            Outcome::CannotStart(error) => Outcome::CannotStart(self.mask_error(error)),
            Outcome::Done => Outcome::Done,
            Outcome::NotStarted => Outcome::NotStarted,
        };
        Completion { outcome, output: self.mask(completion.output), elapsed: completion.elapsed }
    }
}

fn part<'a>(rest: &mut &'a [u8]) -> io::Result<&'a [u8]> {
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let (length, after) = rest.split_first_chunk().ok_or_else(short)?;
    let (part, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(short)?;
    *rest = after;
    Ok(part)
}

/// Secrets in a directory of the host, for a function without a sandbox. It goes when this is dropped.
pub struct SecretFiles(Scratch);

impl SecretFiles {
    /// The files, in a new private directory in `base`.
    pub fn new(base: &Path, secrets: &Secrets) -> Result<Self> {
        let scratch = Scratch::empty(base)?;
        let written = secrets.write_to(scratch.path(), None);
        written.map_err(|error| Code::SpawnFailed.error(format!("cannot write secrets: {error}")))?;
        Ok(Self(scratch))
    }

    /// The variable that says where they are.
    pub fn variable(&self) -> (String, String) {
        (VARIABLE.to_owned(), self.0.path().to_string_lossy().into_owned())
    }
}

/// An executor that masks secrets in the output and the errors of runs.
pub struct RedactingExecutor {
    inner: Box<dyn Executor>,
    secrets: Arc<Secrets>,
}

impl RedactingExecutor {
    /// Of this one.
    pub fn new(inner: Box<dyn Executor>, secrets: Arc<Secrets>) -> Self {
        Self { inner, secrets }
    }
}

impl Executor for RedactingExecutor {
    fn get_ready(&mut self) -> Result<()> {
        self.inner.get_ready().map_err(|error| self.secrets.mask_error(error))
    }

    fn run(&mut self, batch: &mut [Run<'_>], progress: &mut dyn Progress) {
        self.inner.run(batch, &mut Redacting { progress, secrets: &self.secrets });
    }
}

/// A stepper that masks secrets in the errors of steps.
pub struct RedactingStepper {
    inner: Box<dyn Stepper>,
    secrets: Arc<Secrets>,
}

impl RedactingStepper {
    /// Of this one.
    pub fn new(inner: Box<dyn Stepper>, secrets: Arc<Secrets>) -> Self {
        Self { inner, secrets }
    }
}

impl Stepper for RedactingStepper {
    fn get_ready(&mut self) -> Result<()> {
        self.inner.get_ready().map_err(|error| self.secrets.mask_error(error))
    }

    fn step(&mut self, step: &StepWork<'_>, calls: &mut dyn StepCalls, watch: &mut dyn Watch) -> Result<Vec<u8>> {
        self.inner.step(step, calls, watch).map_err(|error| self.secrets.mask_error(error))
    }
}

struct Redacting<'a> {
    progress: &'a mut dyn Progress,
    secrets: &'a Secrets,
}

impl Progress for Redacting<'_> {
    fn ended(&mut self, run: usize, completion: Completion) {
        self.progress.ended(run, self.secrets.mask_completion(completion));
    }

    fn wake_at(&self) -> Option<Instant> {
        self.progress.wake_at()
    }

    fn wake(&mut self) -> Rest {
        self.progress.wake()
    }

    fn over(&mut self) {
        self.progress.over();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(values: &[(&str, &[u8])]) -> Secrets {
        Secrets(values.iter().map(|(name, value)| ((*name).to_owned(), Zeroizing::new(value.to_vec()))).collect())
    }

    #[test]
    fn what_is_handed_over_is_taken_over_and_nothing_else() {
        let all = secrets(&[("a", b"one\0two"), ("b-c", b""), ("d", &[0xff; 70_000])]);
        assert_eq!(Secrets::take_over(all.hand_over().unwrap()).unwrap(), all);
        let file = File::from(all.hand_over().unwrap());
        file.set_len(30).unwrap();
        assert!(Secrets::take_over(file.into()).is_err(), "it was cut");
    }

    #[test]
    fn values_and_parts_of_them_are_masked_wherever_they_stand() {
        let all = secrets(&[("key", b"correct horse battery\n"), ("pin", b"4711")]);
        let mask = |text: &str| String::from_utf8(all.mask(text.as_bytes().to_vec())).unwrap();
        assert_eq!(mask("key=correct horse battery, 4711!"), "key=***, ***!");
        assert_eq!(mask("correct horse battery"), "***");
        assert_eq!(mask("cut: correct hor"), "cut: ***", "its beginning");
        assert_eq!(mask("e battery\nand more"), "***\nand more", "its end");
        assert_eq!(mask("the correction, 471"), "the correction, 471");
        assert_eq!(mask(""), "");
        assert!(!format!("{all:?}").contains("horse"));
        let error = all.mask_error(Code::PythonRaised.error("ValueError: 4711"));
        assert_eq!(error, Code::PythonRaised.error("ValueError: ***"));
        assert_eq!(secrets(&[("tiny", b"x")]).mask(b"x".to_vec()), b"*");
    }

    #[test]
    fn files_are_for_their_owner_alone_and_go_in_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let files = SecretFiles::new(dir.path(), &secrets(&[("key", b"value")])).unwrap();
        let (name, path) = files.variable();
        let file = Path::new(&path).join("key");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((&*name, fs::read(&file).unwrap(), mode(&file)), ("MILLRACE_SECRETS", b"value".to_vec(), 0o400));
        assert_eq!(mode(Path::new(&path)), 0o700);
        drop(files);
        assert!(!Path::new(&path).exists());
    }
}

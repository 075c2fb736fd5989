//! How well functions are isolated on this machine, and what is missing.

use super::{
    defence::Defence,
    inmate::{Bounds, Running, Sandbox, SandboxSpec},
    message::Plan,
    system,
};
use crate::secrets::Secrets;
use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// How well a function is kept from everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// It has the rights of the host's user.
    None,
    /// Files and system calls are restricted; it sees that other processes exist, and limits hold for each process alone.
    Partial,
    /// It has a root directory, processes, a network and a user of its own, and limits in all.
    Full,
}

impl Level {
    /// All levels, the weakest first.
    pub const ALL: [Level; 3] = [Level::None, Level::Partial, Level::Full];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Partial => "partial",
            Self::Full => "full",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|level| level.as_str() == text);
        known.ok_or_else(|| format!("'{text}' is not a level: none, partial or full"))
    }
}

/// Something that this machine does not give, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortcoming {
    /// The missing isolation, and the reason.
    pub cause: String,
    /// How to enable it.
    pub remedy: &'static str,
}

/// A program that calls [`super::supervise`] if [`super::SUPERVISOR`] follows these arguments.
#[derive(Clone, Debug, Default)]
pub(super) struct Executable {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
}

/// How a host keeps its functions apart.
#[derive(Debug)]
pub struct Isolation {
    level: Level,
    shortcomings: Vec<Shortcoming>,
    supervisor: Executable,
    pub(super) namespaces: bool,
    pub(super) without: u32,
    /// Sandboxes that run now and have the host's network.
    networked: AtomicUsize,
}

/// A sandbox with the host's network, for as long as it runs.
pub(super) struct Networked(Arc<Isolation>);

impl Drop for Networked {
    fn drop(&mut self) {
        self.0.networked.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Isolation {
    fn new(level: Level, shortcomings: Vec<Shortcoming>, supervisor: Executable, namespaces: bool) -> Self {
        Self { level, shortcomings, supervisor, namespaces, without: 0, networked: AtomicUsize::new(0) }
    }

    /// Functions run with the rights of this process's user, as was asked for.
    fn none() -> Self {
        let cause =
            "as requested: functions can use the network, and can read and write every file of the host's user, including \
            the keys and the journal of the namespace"
                .to_owned();
        Self::new(Level::None, vec![Shortcoming { cause, remedy: ASK }], Executable::default(), false)
    }

    /// Finds out what this machine gives, by making a sandbox at each level. `supervisor` is a program that calls
    /// [`super::supervise`] when its first argument is [`super::SUPERVISOR`].
    pub fn find(supervisor: &Path) -> Self {
        Self::at_most(Level::Full, supervisor)
    }

    /// The same, but no better than this.
    pub fn at_most(best: Level, supervisor: &Path) -> Self {
        Self::started_by(best, supervisor, &[])
    }

    /// The same; `supervisor` calls [`super::supervise`] when [`super::SUPERVISOR`] follows these arguments.
    pub fn started_by(best: Level, supervisor: &Path, arguments: &[String]) -> Self {
        if best == Level::None {
            return Self::none();
        }
        let mut shortcomings = Vec::new();
        let supervisor = Executable { program: supervisor.to_owned(), arguments: arguments.to_vec() };
        let mut level = Level::None;
        let mut namespaces = false;
        if best == Level::Full {
            match probe(&supervisor, true) {
                Ok(_) => (level, namespaces) = (Level::Full, true),
                Err(cause) => shortcomings.push(Shortcoming { cause, remedy: NAMESPACES }),
            }
        } else {
            shortcomings.push(Shortcoming { cause: "as requested".into(), remedy: ASK });
        }
        if !namespaces && system::landlock_version() > 0 {
            match probe(&supervisor, false) {
                Ok(_) => level = Level::Partial,
                Err(cause) => shortcomings.push(Shortcoming { cause, remedy: LANDLOCK }),
            }
        }
        if system::landlock_version() == 0 {
            let cause = "this kernel has no Landlock".to_owned();
            shortcomings.push(Shortcoming { cause, remedy: LANDLOCK });
            level = level.min(if namespaces { Level::Partial } else { Level::None });
        }
        if level == Level::Full
            && let Err(cause) = super::cgroup::Cgroup::probe()
        {
            shortcomings.push(Shortcoming { cause, remedy: CGROUP });
            level = Level::Partial;
        }
        Self::new(level, shortcomings, supervisor, namespaces)
    }

    /// Takes a defence out, to see that a test notices. Other builds than those of tests ignore it.
    #[must_use]
    pub fn without(mut self, defence: Defence) -> Self {
        self.without |= defence as u32;
        self
    }

    /// The level.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Why it is not the best one.
    pub fn shortcomings(&self) -> &[Shortcoming] {
        &self.shortcomings
    }

    /// Whether the kernel takes processes of functions for this process's user: they are kept from its files, and not by their user id.
    pub fn shares_user(&self) -> bool {
        let has_own = self.namespaces && rustix::process::geteuid().is_root() && Defence::Identity.stands(self.without);
        self.level > Level::None && !has_own
    }

    /// Whether a sandbox runs now that has the host's network.
    pub fn is_networked(&self) -> bool {
        self.networked.load(Ordering::SeqCst) > 0
    }

    /// Counts a sandbox with the host's network.
    pub(super) fn networked(self: &Arc<Self>) -> Networked {
        self.networked.fetch_add(1, Ordering::SeqCst);
        Networked(Arc::clone(self))
    }

    /// The level, and what is missing, in one line.
    pub fn summary(&self) -> String {
        let causes: Vec<&str> = self.shortcomings.iter().map(|missing| missing.cause.as_str()).collect();
        match causes.is_empty() {
            true => self.level.to_string(),
            false => format!("{} ({})", self.level, causes.join("; ")),
        }
    }

    pub(super) fn supervisor(&self) -> &Executable {
        &self.supervisor
    }

    /// The sandbox of one function; `None` if there are none here.
    pub fn sandbox(self: &Arc<Self>, spec: SandboxSpec) -> Option<Arc<Sandbox>> {
        let any = self.level > Level::None;
        any.then(|| Arc::new(Sandbox::new(Arc::clone(self), spec)))
    }
}

const NAMESPACES: &str = "let the host's user make user namespaces: `sysctl user.max_user_namespaces`, and on Ubuntu an AppArmor \
    profile with `userns,` for millrace; in a container, run it with an unmasked /proc and CAP_SYS_ADMIN";
const ASK: &str =
    "remove `--sandbox` and MILLRACE_SANDBOX, so that functions run at the strictest level that the machine supports";
const LANDLOCK: &str =
    "use a kernel of 5.13 or later with Landlock among its security modules (`lsm=landlock,…` when it boots)";
const CGROUP: &str = "let the host have a cgroup: as root, or with `Delegate=cpu memory pids` in its systemd unit";

/// Makes a sandbox without a function, and ends it.
fn probe(supervisor: &Executable, namespaces: bool) -> Result<(), String> {
    let code = PathBuf::from("/usr");
    let plan = Plan { namespaces, code, work: std::env::temp_dir(), ..Plan::default() };
    Running::start(supervisor, &plan, Bounds::default(), &Secrets::default())
        .map(drop)
        .map_err(|error| error.detail().to_owned())
}

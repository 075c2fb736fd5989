//! What the user named (a directory, an address or a context), and where: option, environment or file.

use super::contexts::{Context, Contexts};
use crate::args::Global;
use millrace_node::{
    Code, Result,
    application::{Application, FILE_NAME, NAMESPACE_DIR, trust},
};
use millrace_wire::{Address, Peer};
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// The prefix of a namespace at a Unix socket.
const SOCKET: &str = "unix:";

/// A namespace, as it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// By its files.
    Directory(PathBuf),
    /// By the host that serves it over TCP, and the authorities that identify the host if its key is not pinned.
    Peer(Peer, Option<PathBuf>),
    /// By the host that serves it at this socket.
    Socket(PathBuf),
}

/// The source of the choice; earlier ones take precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The option `--namespace`.
    Option,
    /// `MILLRACE_NAMESPACE`.
    Environment,
    /// The file `millrace.toml` here or in a directory above.
    Application(PathBuf),
    /// There is a `.millrace` here.
    Here,
    /// The context in use.
    Context(String),
    /// Nothing did.
    Nobody,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Directory(dir) => write!(f, "{}", dir.display()),
            Target::Peer(peer, _) => write!(f, "{peer}"),
            Target::Socket(path) => write!(f, "{SOCKET}{}", path.display()),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Option => f.write_str("--namespace names it"),
            Origin::Environment => f.write_str("MILLRACE_NAMESPACE names it"),
            Origin::Application(file) if file == Path::new(FILE_NAME) => f.write_str("millrace.toml names it"),
            Origin::Application(file) => write!(f, "{} names it", file.display()),
            Origin::Here => f.write_str("it is in this directory"),
            Origin::Context(name) => write!(f, "context {name} is selected"),
            Origin::Nobody => f.write_str("it is the default"),
        }
    }
}

/// The application file here or in the nearest directory above that has one; if none does, where it would be here. Another user's is
/// refused, and not passed over: the user means it, or has to know that it is there.
pub fn application_file() -> Result<PathBuf> {
    let depth = std::env::current_dir().map_or(0, |dir| dir.components().count());
    let above = (0..depth).map(|up| PathBuf::from("../".repeat(up)).join(FILE_NAME));
    let mut above = above.filter(|file| file.exists());
    let Some(file) = above.next() else { return Ok(FILE_NAME.into()) };
    trust::check(&file)?;
    let beside = file.with_file_name(NAMESPACE_DIR);
    if Application::namespace_of(&file).is_some_and(|dir| dir == beside) {
        trust::check(&beside)?;
    }
    Ok(file)
}

impl Target {
    /// The kind of an address: `mr://…`, `unix:…`, or else a directory.
    pub fn parse(text: &Path) -> Result<Self> {
        let Some(typed) = text.to_str() else { return Ok(Target::Directory(text.into())) };
        if let Some(path) = typed.strip_prefix(SOCKET) {
            return match path {
                "" => Err(Code::PlaceInvalid.error("'unix:' must be followed by the path of a socket")),
                path => Ok(Target::Socket(path.into())),
            };
        }
        if !typed.contains("://") {
            return Ok(Target::Directory(text.into()));
        }
        let address: Address = typed.parse()?;
        match address.log {
            None => Ok(Target::Peer(address.peer, None)),
            Some(log) => {
                Err(Code::PlaceInvalid.error(format!("'{typed}' includes the log '{log}'; a namespace is needed")))
            }
        }
    }

    /// The same host, identified by the authorities that `ca` names, if it names some.
    fn trusting(self, ca: Option<&Path>) -> Self {
        match (self, ca) {
            (Target::Peer(peer, _), Some(ca)) => Target::Peer(peer, Some(ca.to_owned())),
            (target, _) => target,
        }
    }

    /// The namespace of a context.
    fn of_context(context: &Context, global: &Global) -> Result<Self> {
        let ca = global.ca.as_deref().or(context.ca.as_deref());
        Ok(Self::parse(Path::new(&context.address))?.trusting(ca))
    }

    /// The user's choice: a context takes precedence over a directory, which is written `./NAME`.
    pub fn named(text: &Path, global: &Global) -> Result<Self> {
        let plain = text.to_str().filter(|text| !text.contains(['/', ':']) && !text.starts_with('.'));
        match plain {
            Some(name) => match Contexts::load()?.contexts.get(name) {
                Some(context) => Self::of_context(context, global),
                None => Ok(Target::Directory(text.into())),
            },
            None => Ok(Self::parse(text)?.trusting(global.ca.as_deref())),
        }
    }

    /// The choice of the option or the environment; an empty variable is no choice.
    pub fn chosen(global: &Global) -> Result<Option<(Self, Origin)>> {
        let variable = || std::env::var_os("MILLRACE_NAMESPACE").filter(|text| !text.is_empty()).map(PathBuf::from);
        Ok(match &global.namespace {
            Some(text) => Some((Self::named(text, global)?, Origin::Option)),
            None => match variable() {
                Some(text) => Some((Self::named(&text, global)?, Origin::Environment)),
                None => None,
            },
        })
    }

    /// The namespace that a command is about, and why it is that one.
    pub fn find(global: &Global) -> Result<(Self, Origin)> {
        if let Some(chosen) = Self::chosen(global)? {
            return Ok(chosen);
        }
        // The namespace of this directory takes precedence over the selected context: a user in an application's directory means that application.
        let here = Path::new(NAMESPACE_DIR);
        if here.is_dir() && !Path::new(FILE_NAME).exists() {
            trust::check(here)?;
            return Ok((Target::Directory(here.into()), Origin::Here));
        }
        let file = application_file()?;
        if let Some(dir) = Application::namespace_of(&file) {
            return Ok((Target::Directory(dir), Origin::Application(file)));
        }
        if here.is_dir() {
            return Ok((Target::Directory(here.into()), Origin::Here));
        }
        match Contexts::load()?.in_use() {
            Some((name, context)) => Ok((Self::of_context(context, global)?, Origin::Context(name.to_string()))),
            None => Ok((Target::Directory(here.into()), Origin::Nobody)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Target> {
        Target::parse(Path::new(text))
    }

    #[test]
    fn directories_addresses_and_sockets_are_told_apart() {
        assert_eq!(parse("a/b").unwrap(), Target::Directory("a/b".into()));
        assert_eq!(parse("unix:/run/x").unwrap(), Target::Socket("/run/x".into()));
        let Target::Peer(peer, None) = parse("mr://edge:1/farm").unwrap() else { panic!() };
        assert_eq!((&*peer.host, peer.port, &*peer.namespace), ("edge", 1, "farm"));
        for text in ["a/b", "unix:/run/x", "mr://edge:1/farm"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_names_no_namespace_is_refused() {
        for (text, code) in [
            ("unix:", Code::PlaceInvalid),
            ("mr://edge/farm/raw", Code::PlaceInvalid),
            ("http://edge/farm", Code::AddressInvalid),
            ("mr://edge", Code::AddressInvalid),
        ] {
            assert_eq!(parse(text).unwrap_err().code(), code, "{text}");
        }
    }
}

//! Contexts: short names for namespaces elsewhere, kept in the user's configuration.

use millrace_node::{Code, Error, Name, Result, application::trust};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// The file in the configuration's directory.
const FILE: &str = "contexts.toml";
/// Longer than any file of contexts that people keep.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The content of the file of contexts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// The context in use, where nothing else names a namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<Name>,
    /// Every context by its name.
    #[serde(default)]
    pub contexts: BTreeMap<Name, Context>,
}

/// One context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// A directory, `mr://host:port/namespace` or `unix:PATH`.
    pub address: String,
    /// The certificate authorities that identify its host: a PEM file, or `system`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
}

/// Where the file is; `None` where there is neither `$XDG_CONFIG_HOME` nor `$HOME`.
pub fn path() -> Option<PathBuf> {
    // A relative path there is to be ignored: XDG Base Directory Specification.
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = variable("XDG_CONFIG_HOME").or_else(|| variable("HOME").map(|home| home.join(".config")))?;
    Some(base.join("millrace").join(FILE))
}

fn unusable(path: &Path, what: &str, why: impl std::fmt::Display) -> Error {
    Code::ContextsUnusable.error(format!("cannot {what} {}: {why}", path.display()))
}

impl Contexts {
    /// Reads the file; without a file there are no contexts.
    pub fn load() -> Result<Self> {
        path().map_or_else(|| Ok(Self::default()), |path| Self::read(&path))
    }

    fn read(path: &Path) -> Result<Self> {
        trust::check(path)?;
        let text = match fs::metadata(path).and_then(|file| Ok((file.len(), fs::read_to_string(path)?))) {
            Ok((bytes, _)) if bytes > FILE_BYTES_MAX => return Err(unusable(path, "use", "it is longer than 1 MiB")),
            Ok((_, text)) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(unusable(path, "read", error)),
        };
        toml::from_str(&text).map_err(|error| unusable(path, "understand", error))
    }

    /// Replaces the file, whole; only its owner may read it.
    pub fn store(&self) -> Result<()> {
        let path = path().ok_or_else(|| {
            Code::ContextsUnusable.error("contexts are stored below $XDG_CONFIG_HOME or $HOME, and neither is set")
        })?;
        self.write(&path)
    }

    fn write(&self, path: &Path) -> Result<()> {
        let refused = |error: std::io::Error| unusable(path, "write", error);
        let text = toml::to_string(self).map_err(|error| unusable(path, "write", error))?;
        let dir = path.parent().unwrap_or(Path::new("."));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(refused)?;
        let next = dir.join(format!("{FILE}.{}", std::process::id()));
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&next)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&next, path));
        written.map_err(|error| {
            // Nothing depends on it, and the first error is the one to report.
            let _ = fs::remove_file(&next);
            refused(error)
        })
    }

    /// The context of this name.
    pub fn find(&self, name: &str) -> Result<&Context> {
        self.contexts.get(name).ok_or_else(|| {
            let shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
            Code::ContextNotFound.error(format!("no context '{shown}'"))
        })
    }

    /// The selected context, if any.
    pub fn in_use(&self) -> Option<(&Name, &Context)> {
        self.contexts.get_key_value(self.current.as_ref()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn example() -> Contexts {
        let context = |address: &str, ca: Option<&str>| Context { address: address.into(), ca: ca.map(PathBuf::from) };
        Contexts {
            current: Some("edge".parse().unwrap()),
            contexts: BTreeMap::from([
                ("edge".parse().unwrap(), context("mr://edge:7070/farm", Some("/etc/ca.pem"))),
                ("here".parse().unwrap(), context("/var/lib/mill", None)),
            ]),
        }
    }

    #[test]
    fn contexts_come_back_and_only_their_owner_reads_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/er").join(FILE);
        assert_eq!(Contexts::read(&path).unwrap(), Contexts::default());
        example().write(&path).unwrap();
        assert_eq!(Contexts::read(&path).unwrap(), example());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left there");
        assert_eq!(example().in_use().unwrap().1.address, "mr://edge:7070/farm");
        assert_eq!(example().find("other").unwrap_err().code(), Code::ContextNotFound);
    }

    #[test]
    fn a_file_of_something_else_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        for text in ["x", "contexts = 3", "[contexts.'../x']\naddress = 'y'", "[contexts.x]\nadress = 'y'"] {
            fs::write(&path, text).unwrap();
            assert_eq!(Contexts::read(&path).unwrap_err().code(), Code::ContextsUnusable, "{text}");
        }
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert_eq!(Contexts::read(&path).unwrap_err().code(), Code::ContextsUnusable);
    }
}

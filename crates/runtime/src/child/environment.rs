//! The environment of a child process: its variables and its program.

use crate::{Code, Result};
use rustix::fs::Access;
use std::{
    collections::BTreeMap,
    env,
    ffi::{CString, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// The variables of ours that a function may see: where programs, its home and its temporary files are, and the locale.
const INHERITED: [&str; 7] = ["HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ", "USER"];

/// A child's variables.
#[derive(Clone, Debug)]
pub(crate) struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// A scrubbed environment and the function's own variables.
    pub(crate) fn new(own: &BTreeMap<String, String>) -> Self {
        let inherited = INHERITED.iter().filter_map(|name| Some((name.into(), env::var_os(name)?)));
        Self(inherited.chain(own.iter().map(|(name, value)| (name.into(), value.into()))).collect())
    }

    /// The same on every machine, but for the function's own variables.
    pub(crate) fn fixed(own: &BTreeMap<String, String>, home: &Path, path: &str) -> Self {
        let home = home.as_os_str().to_owned();
        let fixed: [(&str, OsString); 5] = [
            ("HOME", home.clone()),
            ("LANG", "C.UTF-8".into()),
            ("PATH", path.into()),
            ("TMPDIR", home),
            ("USER", "function".into()),
        ];
        let fixed = fixed.map(|(name, value)| (name.into(), value));
        Self(fixed.into_iter().chain(own.iter().map(|(name, value)| (name.into(), value.into()))).collect())
    }

    /// No variables.
    pub(crate) fn empty() -> Self {
        Self(BTreeMap::new())
    }

    pub(crate) fn pairs(&self) -> Vec<(OsString, OsString)> {
        self.0.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.0.insert(name.into(), value.into());
    }

    pub(super) fn to_cstrings(&self) -> Result<Vec<CString>> {
        let joined = self.0.iter().map(|(name, value)| {
            let mut text = name.clone().into_vec();
            text.push(b'=');
            text.extend_from_slice(value.as_bytes());
            cstring(text)
        });
        joined.collect()
    }
}

pub(super) fn cstring(text: impl Into<Vec<u8>>) -> Result<CString> {
    CString::new(text).map_err(|_| {
        Code::CommandUnusable.error("a word of the command or an environment variable contains a zero byte")
    })
}

/// The file that `name` means to a function in `dir`: with a slash it is relative to `dir`, without one it is searched
/// for in PATH, of which directories that are relative to the current one are not meant for functions.
pub(crate) fn program(name: &Path, dir: &Path) -> Result<PathBuf> {
    let usable = |path: &Path| path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok();
    if name.as_os_str().as_bytes().contains(&b'/') {
        let path = std::path::absolute(dir.join(name))
            .map_err(|e| Code::CommandUnusable.error(format!("'{}': {e}", name.display())))?;
        return match usable(&path) {
            true => Ok(path),
            false if path.exists() => {
                Err(Code::CommandUnusable.error(format!("'{}' cannot be executed", path.display())))
            }
            false => Err(Code::CommandUnusable.error(format!("'{}' does not exist", path.display()))),
        };
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .find(|path| !name.as_os_str().is_empty() && usable(path))
        .ok_or_else(|| Code::CommandUnusable.error(format!("'{}' is not a program in PATH", name.display())))
}

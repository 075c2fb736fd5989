//! Secrets of functions, in `NAMESPACE/secrets/functions/`, one file each. The journal has their names at most, in definitions.

use super::files::Folder;
use millrace_dispatch::{SecretBytes, SecretStore};
use millrace_wire::{Code, Name, Result};
use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

/// The extension of a secret's file; a file that is being replaced has another name, which no secret can have.
const SUFFIX: &str = ".secret";
/// How long a value may be.
const VALUE_BYTES: RangeInclusive<usize> = 1..=48 << 10;

/// The secrets that functions of one namespace can be shown.
#[derive(Clone, Debug)]
pub struct FunctionSecrets {
    dir: PathBuf,
}

fn file(name: &Name) -> String {
    format!("{name}{SUFFIX}")
}

impl FunctionSecrets {
    /// Those of the namespace in `dir`.
    pub fn of(dir: &Path) -> Self {
        Self { dir: dir.into() }
    }

    /// Sets a value, in place of the previous one. A host takes it up with the function's next run.
    pub fn set(&self, name: &Name, value: &[u8]) -> Result<()> {
        if !VALUE_BYTES.contains(&value.len()) {
            return Err(Code::FunctionSecretInvalid.error(format!("secret '{name}' would have {} bytes", value.len())));
        }
        Folder::functions(&self.dir, true)?.map_or(Ok(()), |folder| folder.replace(&file(name), value))
    }

    /// The value of a secret, for the host itself.
    pub fn value(&self, name: &Name) -> Result<Option<SecretBytes>> {
        self.read(name)
    }

    /// The names of all, in order.
    pub fn names(&self) -> Result<Vec<Name>> {
        let names = Folder::functions(&self.dir, false)?.map_or(Ok(Vec::new()), |folder| folder.names())?;
        let mut names: Vec<Name> = names.iter().filter_map(|name| name.strip_suffix(SUFFIX)?.parse().ok()).collect();
        names.sort();
        Ok(names)
    }

    /// Removes a secret.
    pub fn remove(&self, name: &Name) -> Result<()> {
        let removed = Folder::functions(&self.dir, false)?.map_or(Ok(false), |folder| folder.remove(&file(name)))?;
        if removed { Ok(()) } else { Err(Code::FunctionSecretNotFound.error(format!("no secret '{name}'"))) }
    }
}

impl SecretStore for FunctionSecrets {
    fn read(&self, name: &Name) -> Result<Option<SecretBytes>> {
        Folder::functions(&self.dir, false)?.map_or(Ok(None), |folder| folder.read(&file(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    #[test]
    fn they_are_set_listed_read_and_removed_and_nobody_else_can_read_them() {
        let dir = tempfile::tempdir().unwrap();
        let secrets = FunctionSecrets::of(dir.path());
        let name = |text: &str| text.parse::<Name>().unwrap();
        assert_eq!((secrets.names().unwrap(), secrets.read(&name("a")).unwrap()), (Vec::new(), None));
        assert!(!dir.path().join("secrets").exists(), "looking makes nothing");
        for (key, value) in [("b", "one"), ("a", "two"), ("b.secret.new", "four"), ("b", "three")] {
            secrets.set(&name(key), value.as_bytes()).unwrap();
        }
        assert_eq!(secrets.names().unwrap(), [name("a"), name("b"), name("b.secret.new")]);
        assert_eq!(**secrets.read(&name("b")).unwrap().unwrap(), *b"three");
        let mode = |path: &str| fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(
            (mode("secrets"), mode("secrets/functions"), mode("secrets/functions/b.secret")),
            (0o700, 0o700, 0o600)
        );
        fs::set_permissions(dir.path().join("secrets/functions/b.secret"), fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(secrets.read(&name("b")).unwrap_err().code(), Code::SecretMode);
        secrets.remove(&name("b")).unwrap();
        assert_eq!(secrets.remove(&name("b")).unwrap_err().code(), Code::FunctionSecretNotFound);
        for wrong in [0, (48 << 10) + 1] {
            assert_eq!(secrets.set(&name("c"), &vec![0; wrong]).unwrap_err().code(), Code::FunctionSecretInvalid);
        }
        fs::set_permissions(dir.path().join("secrets"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(secrets.names().unwrap_err().code(), Code::SecretsFolder);
    }
}

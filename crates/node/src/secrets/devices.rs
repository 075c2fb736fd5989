//! Capabilities for devices, in `NAMESPACE/secrets/devices/`, one file each: with one, this host may send commands to a device. They were
//! made with the keys of the devices, which are in the devices only.

use super::files::Folder;
use millrace_security::token::Token;
use millrace_wire::Result;
use std::path::{Path, PathBuf};

/// The extension of a file; one that is being replaced has another name, which no device can have.
const SUFFIX: &str = ".capability";

/// The capabilities for the devices of one namespace.
#[derive(Clone, Debug)]
pub struct DeviceSecrets {
    dir: PathBuf,
}

fn file(device: &str) -> String {
    format!("{device}{SUFFIX}")
}

impl DeviceSecrets {
    /// Those of the namespace in `dir`.
    pub fn of(dir: &Path) -> Self {
        Self { dir: dir.into() }
    }

    /// Keeps the capability for a device.
    pub fn set(&self, device: &str, capability: &Token) -> Result<()> {
        let folder = Folder::devices(&self.dir, true)?;
        folder.map_or(Ok(()), |folder| folder.replace(&file(device), &capability.to_bytes()))
    }

    /// The capability for a device, if there is one.
    pub fn capability(&self, device: &str) -> Result<Option<Token>> {
        let bytes = Folder::devices(&self.dir, false)?.map_or(Ok(None), |folder| folder.read(&file(device)))?;
        bytes.map(|bytes| Token::from_bytes(&bytes)).transpose()
    }

    /// Removes the capability for a device; whether there was one.
    pub fn remove(&self, device: &str) -> Result<bool> {
        Folder::devices(&self.dir, false)?.map_or(Ok(false), |folder| folder.remove(&file(device)))
    }
}

//! The list of a function's code, for sending it to another machine.

use super::tree;
use millrace_wire::{Code, Hex, Result};
use sha2::{Digest, Sha256};
use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Bytes of a file that are read at once.
const READ_BYTES: usize = 256 << 10;

/// A function's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeListing {
    /// The value of [`millrace_namespace::Definition::code`] once it is deployed.
    pub code: String,
    /// The name of the file, if the code is a single one.
    pub file: Option<String>,
    /// Its files and directories, in the order in which they are hashed.
    pub items: Vec<CodeItem>,
}

/// A file or directory of a function's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeItem {
    /// Below the code's root.
    pub path: String,
    /// Where it is now.
    pub from: PathBuf,
    /// Whether it is a directory.
    pub directory: bool,
    /// Whether the file can be executed.
    pub executable: bool,
    /// The file's length.
    pub bytes: u64,
    /// The SHA-256 of the file's content, empty for a directory.
    pub sha256: String,
}

/// Lists the code at `source`, a file or a directory, as deploying it would take it.
pub fn list_code(source: &Path) -> Result<CodeListing> {
    let tree::Listing { root, items, file } = tree::listing(source)?;
    let items = items.into_iter().map(|item| {
        let from = root.join(&item.below);
        let path = item.below.to_str().ok_or_else(|| {
            Code::CodeRefused.error(format!("'{}' cannot be sent: its name is not UTF-8", from.display()))
        })?;
        let (bytes, sha256) = if item.directory { (0, String::new()) } else { digest(&from)? };
        let (directory, executable) = (item.directory, item.executable);
        Ok(CodeItem { path: path.to_owned(), from: from.clone(), directory, executable, bytes, sha256 })
    });
    let items = items.collect::<Result<_>>()?;
    Ok(CodeListing { code: tree::hash(source)?, file, items })
}

/// The length and the SHA-256 of a file.
fn digest(path: &Path) -> Result<(u64, String)> {
    let read = || -> io::Result<(u64, String)> {
        let (mut file, mut digest, mut length) = (File::open(path)?, Sha256::new(), 0);
        let mut part = vec![0; READ_BYTES];
        loop {
            match file.read(&mut part)? {
                0 => return Ok((length, Hex(digest.finalize()).to_string())),
                bytes => {
                    digest.update(&part[..bytes]);
                    length += bytes as u64;
                }
            }
        }
    };
    read().map_err(|error| Code::Io.error(format!("cannot read '{}': {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    #[test]
    fn a_listing_names_what_deploying_would_store() {
        let dir = tempfile::tempdir().unwrap();
        let code = dir.path().join("code");
        fs::create_dir_all(code.join("lib")).unwrap();
        fs::create_dir_all(code.join(".git")).unwrap();
        fs::write(code.join(".git/config"), "not code").unwrap();
        fs::write(code.join("lib/util.py"), "abc").unwrap();
        fs::write(code.join("run"), "").unwrap();
        fs::set_permissions(code.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
        let listing = list_code(&code).unwrap();
        let shown: Vec<_> = listing.items.iter().map(|item| (&*item.path, item.directory, item.executable)).collect();
        assert_eq!(shown, [("lib", true, false), ("lib/util.py", false, false), ("run", false, true)]);
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!((listing.items[1].bytes, &*listing.items[1].sha256), (3, abc));
        let stored = tree::store(&code, &dir.path().join("store")).unwrap();
        assert_eq!((&listing.code, &listing.file), (&stored.hash, &None));
        let alone = list_code(&code.join("run")).unwrap();
        assert_eq!((alone.file.as_deref(), alone.items.len()), (Some("run"), 1));
    }
}

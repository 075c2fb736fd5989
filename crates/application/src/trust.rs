//! Whether a command may use a file or a directory that nobody named: one that it found at or above the working directory, or in the
//! user's configuration.
//!
//! Anyone can put a `millrace.toml` above a directory that others work in, such as `/tmp`, and a user who applies it runs the code that it
//! names. So what is found must be under the control of the user who runs the command, or of root.

use millrace_wire::{Code, Defence, Error, Result};
use std::{
    env,
    ffi::OsStr,
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Directories that the user trusts, with everything below, although others control them; separated by `:`.
pub const VARIABLE: &str = "MILLRACE_TRUSTED";
/// The mode bit that lets everybody write.
const OTHERS_WRITE: u32 = 0o002;

/// Refuses a file or a directory that another user controls: that user owns it, or owns the directory of a file, or everybody may write to
/// either. Of a symbolic link, both the link and what it leads to count. What does not exist passes.
///
/// # Errors
///
/// [`Code::NotTrusted`], with the line that allows it.
pub fn check(path: &Path) -> Result<()> {
    if !Defence::OwnFiles.stands() || fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    let dir = directory_of(path);
    if is_listed(dir) {
        return Ok(());
    }
    let mut looked_at = vec![path.to_owned()];
    if let Ok(real) = fs::canonicalize(path) {
        // The code that a file names stands beside it.
        if !real.is_dir() {
            looked_at.extend([dir.to_owned(), directory_of(&real).to_owned()]);
        }
        looked_at.push(real);
    }
    let users = Users::current(env::var_os("SUDO_UID").as_deref());
    for each in looked_at {
        let seen = if each == path { fs::symlink_metadata(&each) } else { fs::metadata(&each) };
        let why = match seen {
            Ok(seen) => users.objection(&seen),
            Err(error) => Some(format!("cannot be looked at: {error}")),
        };
        if let Some(why) = why {
            return Err(refused(path, dir, &each, &why));
        }
    }
    Ok(())
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether the user has named this directory, or one above it, in [`VARIABLE`].
fn is_listed(dir: &Path) -> bool {
    let (Some(listed), Ok(dir)) = (env::var_os(VARIABLE), fs::canonicalize(dir)) else { return false };
    // A relative path would mean another directory in each place.
    let mut listed = env::split_paths(&listed).filter(|listed| listed.is_absolute());
    listed.any(|listed| fs::canonicalize(listed).is_ok_and(|listed| dir.starts_with(listed)))
}

/// The users whose files a command uses unasked.
struct Users {
    own: u32,
    /// Who called `sudo`, if root runs the command: that user may do anything already.
    caller: Option<u32>,
}

impl Users {
    fn current(sudo: Option<&OsStr>) -> Self {
        let own = rustix::process::geteuid().as_raw();
        let caller = sudo.filter(|_| own == 0).and_then(|text| text.to_str()?.parse().ok());
        Self { own, caller }
    }

    /// Why what is seen there is not under the control of these users or of root.
    fn objection(&self, seen: &Metadata) -> Option<String> {
        let (owner, is_link) = (seen.uid(), seen.file_type().is_symlink());
        if owner != 0 && owner != self.own && Some(owner) != self.caller {
            return Some(format!("belongs to user {owner}"));
        }
        // Nobody can write to a link, whose mode says nothing.
        (!is_link && seen.mode() & OTHERS_WRITE != 0).then(|| "can be changed by every user".to_owned())
    }
}

fn refused(path: &Path, dir: &Path, object: &Path, why: &str) -> Error {
    let shown = |path: &Path| path.to_string_lossy().into_owned();
    let full = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let name = path.file_name().map_or_else(|| full.clone(), |name| full.join(name));
    let which = if object == path {
        shown(&name)
    } else {
        format!("{} is not used: {}", shown(&name), shown(&absolute(object)))
    };
    let word = format!("'{}'", shown(&full).replace('\'', r"'\''"));
    let more = env::var_os(VARIABLE).filter(|text| !text.is_empty()).map_or("", |_| "$MILLRACE_TRUSTED:");
    let remedy = match shown(&full).contains(':') {
        // The list cannot have it.
        true => String::new(),
        false => format!("; to trust this directory: export {VARIABLE}={more}{word}"),
    };
    Code::NotTrusted.error(format!("{which} {why}{remedy}"))
}

fn absolute(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn why(path: &Path) -> String {
        let error = check(path).unwrap_err();
        assert_eq!(error.code(), Code::NotTrusted);
        error.detail().to_owned()
    }

    #[test]
    fn what_this_user_controls_is_used() {
        let place = tempfile::tempdir().unwrap();
        let (file, dir) = (place.path().join("millrace.toml"), place.path().join(".millrace"));
        fs::write(&file, "").unwrap();
        fs::create_dir(&dir).unwrap();
        check(&file).unwrap();
        check(&dir).unwrap();
        check(&place.path().join("none")).unwrap();
        // A team may share a group.
        set(&file, 0o664);
        set(place.path(), 0o775);
        check(&file).unwrap();
    }

    #[test]
    fn what_everybody_can_change_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let (file, dir) = (place.path().join("millrace.toml"), place.path().join(".millrace"));
        fs::write(&file, "").unwrap();
        fs::create_dir(&dir).unwrap();
        set(&file, 0o666);
        assert!(why(&file).contains("can be changed by every user"));
        set(&file, 0o644);
        set(&dir, 0o777);
        assert!(why(&dir).contains("can be changed by every user"));
        // Others could put the code beside the file that it names.
        set(place.path(), 0o1777);
        let reported = why(&file);
        assert!(reported.contains(&format!("export MILLRACE_TRUSTED='{}'", place.path().display())), "{reported}");
        // The namespace itself is this user's, and the sticky bit protects its name.
        set(&dir, 0o700);
        check(&dir).unwrap();
    }

    #[test]
    fn a_link_counts_with_what_it_leads_to() {
        let (place, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (link, file) = (place.path().join("millrace.toml"), other.path().join("x.toml"));
        fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        check(&link).unwrap();
        set(other.path(), 0o777);
        assert!(why(&link).contains("can be changed by every user"));
        set(other.path(), 0o755);
        set(&file, 0o666);
        assert!(why(&link).contains("x.toml can be changed by every user"));
        // It leads nowhere, so nothing is used.
        fs::remove_file(&file).unwrap();
        check(&link).unwrap();
    }

    #[test]
    fn root_uses_the_files_of_the_user_who_called_sudo_and_of_nobody_else() {
        if !rustix::process::geteuid().is_root() {
            println!("not run: only root can be two users");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("millrace.toml");
        fs::write(&file, "").unwrap();
        chown(&file, Some(54321), None).unwrap();
        assert!(why(&file).contains("belongs to user 54321"));
        let seen = fs::metadata(&file).unwrap();
        let users = |sudo: &str| Users::current(Some(OsStr::new(sudo)));
        assert_eq!(users("54321").objection(&seen), None);
        for sudo in ["54322", "", "x"] {
            assert!(users(sudo).objection(&seen).is_some(), "{sudo}");
        }
        // Another user than root is not helped by the variable, and root's files are everybody's.
        let users = Users { own: 54322, caller: None };
        assert!(users.objection(&seen).is_some());
        assert_eq!(users.objection(&fs::metadata(place.path()).unwrap()), None);
    }
}

//! The files that a function sees: a root directory in memory, with the files that programs need, read-only.

use super::{
    defence::Defence,
    message::Plan,
    supervisor::{Attempt, Step},
    system,
};
use crate::secrets::Secrets;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change};
use std::{
    ffi::CStr,
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// Where a function finds its code.
pub(super) const CODE: &str = "/function";
/// Where working directories stand.
pub(super) const WORK: &str = "/work";
/// Where secrets stand.
const SECRETS: &str = "/run/secrets";
/// More than they can have.
const SECRETS_SIZE: &CStr = c"size=8m,nr_inodes=128,mode=755";
/// The limits of each directory that a function can write to.
const TEMPORARY: &CStr = c"size=64m,nr_inodes=4096,mode=1777";
const TEMPORARY_UNBOUNDED: &CStr = c"mode=1777";
const ROOT: &CStr = c"size=1m,nr_inodes=4096,mode=755";
/// Programs, libraries, and the files that the loader and libraries read. Files that are missing on the host are missing in the sandbox.
const SYSTEM: [&str; 24] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/etc/alternatives",
    "/etc/ca-certificates",
    // Where Debian's JDKs have the files without which they do not start.
    "/etc/java-17-openjdk",
    "/etc/java-21-openjdk",
    "/etc/java-25-openjdk",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/mime.types",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/python3",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
];
/// Additional files for a function that may use the network.
const NETWORK: [&str; 4] = ["/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/gai.conf"];
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
const LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
];
const USERS: &str = "root:x:0:0::/nonexistent:/bin/false\nfunction:x:1000:1000::/tmp:/bin/sh\n";
const GROUPS: &str = "root:x:0:\nfunction:x:1000:\n";

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID;

/// Files of the host that are visible under their own paths.
pub(super) fn is_shown(path: &Path) -> bool {
    SYSTEM.iter().any(|shown| path.starts_with(shown))
}

/// All that may be read, where there is no root directory of its own.
pub(super) fn readable() -> impl Iterator<Item = &'static str> {
    SYSTEM.into_iter().chain(NETWORK).chain(["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"])
}

/// Where a function finds its secrets: in its root directory, or in the directory of its working directories.
pub(super) fn secrets(work: Option<&Path>) -> PathBuf {
    work.map_or_else(|| SECRETS.into(), |work| work.join("secrets"))
}

/// Makes the root directory and changes into it. It happens in a mount namespace of its own, in the first process of a PID
/// namespace. `owner` is who the function is going to be, if that is another user.
pub(super) fn change_root(plan: &Plan, shown: &Secrets, owner: Option<u32>) -> Attempt<()> {
    let stands = |defence: Defence| defence.stands(plan.without);
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).step("make mounts private")?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", "/tmp", "tmpfs", flags, ROOT).step("mount a root directory")?;
    for dir in ["/tmp/old", "/tmp/new"] {
        fs::create_dir(dir).step("make a root directory")?;
    }
    // A file system of its own below the first, which goes with everything that is not shown.
    mount("tmpfs", "/tmp/new", "tmpfs", flags, ROOT).step("mount a root directory")?;
    rustix::process::pivot_root("/tmp", "/tmp/old").step("pivot_root")?;
    rustix::process::chdir("/").step("chdir /")?;
    let network = if plan.network { &NETWORK[..] } else { &[] };
    SYSTEM.iter().chain(network).try_for_each(|path| show(Path::new(path)))?;
    bind(&old(&plan.code), &new(Path::new(CODE)), READ_ONLY | libc::MOUNT_ATTR_NODEV)?;
    devices()?;
    let size = if stands(Defence::Temporary) { TEMPORARY } else { TEMPORARY_UNBOUNDED };
    for dir in ["/tmp", WORK, "/dev/shm"] {
        let at = new(Path::new(dir));
        fs::create_dir_all(&at).step("make a temporary directory")?;
        mount("tmpfs", &at, "tmpfs", flags, size).step("mount a temporary directory")?;
    }
    // Only now: an interpreter may stand below one of those, which would hide it.
    plan.shown.iter().try_for_each(|path| show(path))?;
    plan.links.iter().try_for_each(|(link, target)| make_link(link, target))?;
    if !shown.is_empty() {
        let at = new(Path::new(SECRETS));
        fs::create_dir_all(&at).step("make a directory of secrets")?;
        mount("tmpfs", &at, "tmpfs", flags | MountFlags::NOEXEC, SECRETS_SIZE).step("mount secrets")?;
        shown.write_to(&at, owner).step("write secrets")?;
        system::restrict_mount(&at, READ_ONLY, false).step("make secrets read-only")?;
    }
    processes(stands(Defence::Processes))?;
    for (name, text) in [("/etc/passwd", USERS), ("/etc/group", GROUPS)] {
        fs::create_dir_all(new(Path::new("/etc"))).step("make /etc")?;
        fs::write(new(Path::new(name)), text).step("write /etc")?;
    }
    if !stands(Defence::Root) {
        fs::create_dir(new(Path::new("/old"))).step("make /old")?;
        mount_bind_recursive("/old", "/new/old").step("show everything")?;
    }
    rustix::process::chdir("/new").step("chdir to the new root")?;
    rustix::process::pivot_root(".", ".").step("pivot_root")?;
    // The old root is now mounted over the new one, and is this process's working directory.
    rustix::mount::unmount(".", UnmountFlags::DETACH).step("unmount the old root")?;
    rustix::process::chdir("/").step("chdir /")?;
    system::restrict_mount(Path::new("/"), READ_ONLY, false).step("make the root directory read-only")
}

fn old(path: &Path) -> PathBuf {
    Path::new("/old").join(path.strip_prefix("/").unwrap_or(path))
}

fn new(path: &Path) -> PathBuf {
    Path::new("/new").join(path.strip_prefix("/").unwrap_or(path))
}

/// Shows a file or directory of the host under its name; a link as the link that it is.
fn show(path: &Path) -> Attempt<()> {
    let (from, to) = (old(path), new(path));
    let Ok(meta) = fs::symlink_metadata(&from) else { return Ok(()) };
    if to.symlink_metadata().is_ok() {
        // A directory above it is shown.
        return Ok(());
    }
    if meta.is_symlink() && matches!(path.parent(), Some(parent) if parent == Path::new("/")) {
        // Such as /bin, which programs expect to lead to /usr/bin.
        return fs::read_link(&from).and_then(|target| symlink(target, &to)).step("link a system directory");
    }
    // Followed as it is outside: links of /etc lead to other places.
    let from = resolve(&from).step("follow a link")?;
    bind(&from, &to, READ_ONLY | libc::MOUNT_ATTR_NODEV)
}

/// Makes a link by which a program is called, unless there is something.
fn make_link(link: &Path, target: &Path) -> Attempt<()> {
    let at = new(link);
    if at.symlink_metadata().is_ok() {
        return Ok(());
    }
    fs::create_dir_all(at.parent().unwrap_or(&at)).step("make a directory of a link")?;
    symlink(target, &at).step("link a program")
}

/// Follows links below `/old` as if that were the root.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..40 {
        match fs::read_link(&path) {
            Ok(target) if target.is_absolute() => path = old(&target),
            Ok(target) => path = path.parent().unwrap_or(Path::new("/old")).join(target),
            Err(_) => break,
        }
    }
    Ok(path)
}

fn bind(from: &Path, to: &Path, attributes: u64) -> Attempt<()> {
    let Ok(meta) = fs::metadata(from) else {
        return if from == old(Path::new(CODE)) || !is_optional(to) {
            Err(super::supervisor::missing(to))
        } else {
            Ok(())
        };
    };
    if meta.is_dir() {
        fs::create_dir_all(to).step("make a directory to mount on")?;
    } else {
        fs::create_dir_all(to.parent().unwrap_or(to)).step("make a directory to mount in")?;
        fs::write(to, "").step("make a file to mount on")?;
    }
    mount_bind_recursive(from, to).step("bind")?;
    system::restrict_mount(to, attributes, true).step("make a mount read-only")
}

fn is_optional(to: &Path) -> bool {
    SYSTEM.iter().chain(&NETWORK).any(|path| to == new(Path::new(path)))
}

fn devices() -> Attempt<()> {
    fs::create_dir_all(new(Path::new("/dev"))).step("make /dev")?;
    for name in DEVICES {
        let path = Path::new("/dev").join(name);
        // The node itself must stay a device; writing to one changes no file.
        bind(&old(&path), &new(&path), libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC)?;
    }
    for (target, name) in LINKS {
        symlink(target, new(&Path::new("/dev").join(name))).step("link in /dev")?;
    }
    Ok(())
}

/// Mounts /proc of the sandbox. In containers whose /proc is masked, the kernel refuses it; then there is none.
fn processes(bounded: bool) -> Attempt<()> {
    let at = new(Path::new("/proc"));
    fs::create_dir_all(&at).step("make /proc")?;
    if !bounded {
        return mount_bind_recursive("/old/proc", &at).step("bind /proc");
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let _ = mount("proc", &at, "proc", flags, c"subset=pid,hidepid=invisible");
    Ok(())
}

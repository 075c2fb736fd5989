//! The serial port of a device: a terminal device, or the Unix socket of an emulator.

use millrace_node::{Code, Error, Result};
use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock, open},
    io::Errno,
    termios::{ControlModes, OptionalActions, ioctl_tiocexcl, isatty, tcgetattr, tcsetattr},
};
use std::{
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::{
            fs::FileTypeExt,
            net::{SocketAddr, UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

/// An open port. Nobody else can open it with this command.
pub struct Port {
    fd: OwnedFd,
    /// A name that the system forgets with this process: a Unix socket cannot be locked.
    _taken: Option<UnixListener>,
}

/// What is wrong with a port, in words that say what to do.
fn refused(path: &Path, what: &str) -> Error {
    Code::Io.error(format!("{}: {what}", path.display()))
}

fn in_use(path: &Path) -> Error {
    let shown = path.display();
    refused(
        path,
        &format!("another program uses this port; `fuser {shown}` names it, or end the other `device attach`"),
    )
}

impl Port {
    /// Opens the port; `baud` is ignored at a socket.
    pub fn open(path: &Path, baud: u32) -> Result<Self> {
        let kind = match fs::metadata(path) {
            Ok(about) => about.file_type(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let what =
                    "there is no such port: connect the device, or start its emulator; `ls /dev/tty*` lists ports";
                return Err(refused(path, what));
            }
            Err(error) => return Err(refused(path, &error.to_string())),
        };
        if kind.is_socket() {
            return Self::socket(path);
        }
        if !kind.is_char_device() {
            return Err(refused(path, "it is neither a serial port, such as /dev/ttyUSB0, nor a Unix socket"));
        }
        Self::terminal(path, baud)
    }

    fn terminal(path: &Path, baud: u32) -> Result<Self> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty()).map_err(|error| match error {
            Errno::BUSY => in_use(path),
            Errno::ACCESS => refused(
                path,
                "permission denied: this user must be a member of the group of the port, which `ls -l` shows (on Debian: `sudo usermod -aG \
                 dialout $USER`, and log in again)",
            ),
            error => refused(path, &error.to_string()),
        })?;
        if !isatty(&fd) {
            return Err(refused(path, "it is no serial port"));
        }
        if flock(&fd, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(in_use(path));
        }
        let failed = |error: Errno| refused(path, &format!("the port cannot be set up: {error}"));
        ioctl_tiocexcl(&fd).map_err(failed)?;
        let mut settings = tcgetattr(&fd).map_err(failed)?;
        settings.make_raw();
        settings.control_modes |= ControlModes::CLOCAL | ControlModes::CREAD;
        settings.control_modes &= !(ControlModes::CRTSCTS | ControlModes::CSTOPB);
        let unable = || Code::ValueInvalid.error(format!("{}: the port does not support {baud} baud", path.display()));
        settings.set_speed(baud).map_err(|_| unable())?;
        tcsetattr(&fd, OptionalActions::Flush, &settings).map_err(|_| unable())?;
        // The system calls it a success if only a part of the settings was taken over.
        if tcgetattr(&fd).map_err(failed)?.output_speed() != baud {
            return Err(unable());
        }
        Ok(Self { fd, _taken: None })
    }

    fn socket(path: &Path) -> Result<Self> {
        let whole: PathBuf = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let name = millrace_device::crc32c(0, whole.as_os_str().as_encoded_bytes());
        let name = SocketAddr::from_abstract_name(format!("millrace-attach-{name:08x}"));
        let taken = name.and_then(|name| UnixListener::bind_addr(&name)).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => in_use(path),
            _ => refused(path, &error.to_string()),
        })?;
        let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                refused(path, "no emulator listens at this socket; start it with `-serial unix:PATH,server=on`")
            }
            io::ErrorKind::PermissionDenied => refused(path, "permission denied: run this as the user of the emulator"),
            _ => refused(path, &error.to_string()),
        })?;
        stream.set_nonblocking(true).map_err(|error| refused(path, &error.to_string()))?;
        Ok(Self { fd: stream.into(), _taken: Some(taken) })
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

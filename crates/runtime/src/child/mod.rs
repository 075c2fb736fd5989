//! Child processes: started without copying this process, bounded, and gone when this process is.
//!
//! Every child leads a process group of its own, so that what it starts can be ended with it, and gets SIGKILL when the thread that started
//! it ends ([`keeper`] is a thread that does not). Its environment is cleared, and it inherits only the descriptors that are passed to it.

mod environment;
mod keeper;
mod process;
mod scratch;
#[allow(unsafe_code)]
mod spawn;

pub(crate) use environment::{Environment, program};
pub(crate) use keeper::on_keeper;
pub(crate) use process::{Child, Ended, Process, child_of, kill_group, pid_of, read_some, readable};
pub(crate) use scratch::{Scratch, mirror};
pub(crate) use spawn::{Plan, refusal, spawn};

use crate::{Error, Result};
use rustix::{
    fs::OFlags,
    net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType},
    pipe::PipeFlags,
    process::Pid,
};
use std::{io::IoSliceMut, mem::MaybeUninit, os::fd::OwnedFd};

/// A pipe whose reading end does not block: (ours to read, the child's to write).
pub(crate) fn output_pipe() -> Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(no_descriptor)?;
    rustix::fs::fcntl_setfl(&ours, OFlags::NONBLOCK).map_err(no_descriptor)?;
    Ok((ours, theirs))
}

/// A pair of connected sockets: (ours, the child's).
pub(crate) fn channel(kind: SocketType) -> Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).map_err(no_descriptor)
}

/// `/dev/null`, for reading and writing.
pub(crate) fn null() -> Result<OwnedFd> {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null");
    null.map(OwnedFd::from).map_err(|e| crate::Code::SpawnFailed.error(format!("cannot open /dev/null: {e}")))
}

/// The same; the kernel also reports the sender of the first bytes: see [`sender`].
pub(crate) fn named_channel() -> Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = channel(SocketType::STREAM)?;
    rustix::net::sockopt::set_socket_passcred(&ours, true).map_err(no_descriptor)?;
    Ok((ours, theirs))
}

/// The process that sent what is to be received next, by the kernel's word; nothing is taken from the channel.
pub(crate) fn sender(channel: &OwnedFd) -> Option<Pid> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut first = [0];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    rustix::net::recvmsg(channel, &mut [IoSliceMut::new(&mut first)], &mut ancillary, flags).ok()?;
    let sender = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(sender) => Some(sender.pid),
        _ => None,
    });
    // Nobody asks again.
    rustix::net::sockopt::set_socket_passcred(channel, false).ok()?;
    sender
}

/// The same descriptor once more.
pub(crate) fn copy(fd: &OwnedFd) -> Result<OwnedFd> {
    fd.try_clone().map_err(|e| crate::Code::SpawnFailed.error(format!("cannot copy a descriptor: {e}")))
}

fn no_descriptor(errno: rustix::io::Errno) -> Error {
    crate::Code::SpawnFailed.error(format!("cannot open a descriptor for the process: {errno}"))
}

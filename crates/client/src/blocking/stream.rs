//! The bytes of a connection that blocks: plain over a Unix socket, and otherwise through the channel or TLS.

use super::socket::is_pause;
use crate::{
    Credentials, Options, Place,
    loopback::{self, Near},
    secure::{self, Records, tls},
    session::{broken, closed},
};
use millrace_security::token::Binding;
use millrace_wire::{Code, Result};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use rustls::ClientConnection;
use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

const READ_BYTES: usize = 16 << 10;

/// A connection as the system has it.
pub enum Raw {
    Tcp(TcpStream),
    Unix(UnixStream),
}

macro_rules! both {
    ($self:expr, $stream:ident => $body:expr) => {
        match $self {
            Raw::Tcp($stream) => $body,
            Raw::Unix($stream) => $body,
        }
    };
}

/// Cuts a connection from another thread: its reads and writes end at once.
pub struct HangUp(Raw);

impl HangUp {
    /// Cuts the connection; does nothing if it is cut already.
    pub fn hang_up(&self) {
        let _ = both!(&self.0, stream => stream.shutdown(Shutdown::Both));
    }
}

impl Raw {
    pub fn hang_up(&self) -> io::Result<HangUp> {
        let clone = match self {
            Raw::Tcp(stream) => Raw::Tcp(stream.try_clone()?),
            Raw::Unix(stream) => Raw::Unix(stream.try_clone()?),
        };
        Ok(HangUp(clone))
    }

    pub fn set_timeouts(&self, time: Option<Duration>) -> io::Result<()> {
        both!(self, stream => stream.set_read_timeout(time).and(stream.set_write_timeout(time)))
    }

    /// Secures a connection to a port with this user's credentials, before `until`; calls `check` from time to time to learn whether the
    /// caller still waits.
    pub fn secure(
        self,
        place: &Place,
        options: &Options,
        near: Near,
        until: Instant,
        check: impl Fn() -> Result<()>,
    ) -> Result<Safe> {
        let plain = |raw| Stream { raw, layer: Layer::None };
        let (Raw::Tcp(stream), Place::Tcp(peer)) = (&self, place) else {
            let (stream, credentials) = (plain(self), options.for_socket()?);
            return Ok(Safe { stream, credentials, binding: None, has_token: false });
        };
        let address = stream.peer_addr().map_err(|error| broken(&error))?;
        let (credentials, has_token) = options.for_host(peer, address, near)?;
        let wait = |error: &io::Error| -> Result<()> {
            if !is_pause(error) {
                return Err(secure::failed(error));
            }
            check()?;
            let late = || Code::ConnectTimeout.error(format!("{place} did not complete the handshake"));
            if Instant::now() < until { Ok(()) } else { Err(late()) }
        };
        if let Some((config, name)) = tls::way(&credentials, &peer.host)? {
            let connection = ClientConnection::new(config, name);
            let mut connection = connection.map_err(|error| tls::failed(&error))?;
            let mut raw = self;
            while connection.is_handshaking() {
                if let Err(error) = connection.complete_io(&mut raw) {
                    wait(&error)?;
                }
            }
            let binding = tls::binding(&connection)?;
            let stream = Stream { raw, layer: Layer::Tls(Box::new(connection)) };
            return Ok(Safe { stream, credentials, binding: Some(binding), has_token });
        }
        let Some(connecting) = secure::begin(&credentials)? else {
            loopback::check_near(address)?;
            return Ok(Safe { stream: plain(self), credentials, binding: None, has_token });
        };
        let (mut raw, mut sent, mut received) = (self, 0, Vec::new());
        while sent < connecting.m1().len() {
            match raw.write(&connecting.m1()[sent..]) {
                Ok(count) => sent += count,
                Err(error) => wait(&error)?,
            }
        }
        loop {
            if let Some((channel, used)) = connecting.receive(&received)? {
                let records = Records::new(channel, Vec::new(), received.split_off(used));
                let stream = Stream { raw, layer: Layer::Channel(Box::new(records)) };
                return Ok(Safe { stream, credentials, binding: None, has_token });
            }
            let mut bytes = [0; 256];
            match raw.read(&mut bytes) {
                Ok(0) => return Err(closed()),
                Ok(count) => received.extend_from_slice(&bytes[..count]),
                Err(error) => wait(&error)?,
            }
        }
    }
}

impl Read for Raw {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        both!(self, stream => stream.read(to))
    }
}

impl Write for Raw {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        both!(self, stream => stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Layer {
    None,
    Channel(Box<Records>),
    Tls(Box<ClientConnection>),
}

/// A connection that is secured, with what HELLO needs.
pub struct Safe {
    pub stream: Stream,
    pub credentials: Credentials,
    pub binding: Option<Binding>,
    /// Whether there is a token that was not used.
    pub has_token: bool,
}

/// A connection that is ready for use. Written bytes are sent when a flush returns.
pub struct Stream {
    raw: Raw,
    layer: Layer,
}

impl Stream {
    /// Whether it is a channel, which has no preface.
    pub fn is_channel(&self) -> bool {
        matches!(self.layer, Layer::Channel(_))
    }

    /// Checks the user at the other end, where only the kernel knows it.
    pub fn check(&self) -> Result<()> {
        match (&self.raw, &self.layer) {
            (Raw::Tcp(stream), Layer::None) => loopback::check(|| Ok((stream.peer_addr()?, stream.local_addr()?))),
            _ => Ok(()),
        }
    }

    pub fn set_read_timeout(&self, time: Duration) -> io::Result<()> {
        both!(&self.raw, stream => stream.set_read_timeout(Some(time)))
    }

    /// Waits until something can be read, or the time is over.
    pub fn wait(&self, time: Duration) -> io::Result<()> {
        let time = Timespec::try_from(time).map_err(io::Error::other)?;
        let mut wanted = [both!(&self.raw, stream => PollFd::new(stream, PollFlags::IN))];
        match poll(&mut wanted, Some(&time)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads what has come, without waiting.
    pub fn look(&mut self, to: &mut [u8]) -> io::Result<usize> {
        both!(&self.raw, stream => stream.set_nonblocking(true))?;
        let look = self.read(to);
        both!(&self.raw, stream => stream.set_nonblocking(false)).and(look)
    }
}

impl Read for Stream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match &mut self.layer {
            Layer::None => self.raw.read(to),
            Layer::Tls(connection) => rustls::Stream::new(&mut **connection, &mut self.raw).read(to),
            Layer::Channel(records) => loop {
                let taken = records.take(to)?;
                if taken > 0 || to.is_empty() {
                    return Ok(taken);
                }
                let mut bytes = [0; READ_BYTES];
                match self.raw.read(&mut bytes)? {
                    0 if records.is_cut() => return Err(io::ErrorKind::UnexpectedEof.into()),
                    0 => return Ok(0),
                    count => records.received(&bytes[..count]),
                }
            },
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.layer {
            Layer::None => self.raw.write(bytes),
            Layer::Tls(connection) => rustls::Stream::new(&mut **connection, &mut self.raw).write(bytes),
            Layer::Channel(records) => {
                send(records, &mut self.raw)?;
                records.seal(bytes)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.layer {
            Layer::None => Ok(()),
            Layer::Tls(connection) => rustls::Stream::new(&mut **connection, &mut self.raw).flush(),
            Layer::Channel(records) => send(records, &mut self.raw),
        }
    }
}

fn send(records: &mut Records, raw: &mut Raw) -> io::Result<()> {
    while !records.unsent().is_empty() {
        match raw.write(records.unsent())? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => records.sent(count),
        }
    }
    Ok(())
}

//! A link's connection to another host: a connection of the client crate, with the errors of links and a limit on every wait.

use crate::{patience, wire::SOFTWARE};
use millrace_client::{
    Options, Place,
    blocking::{Dialled, HangUp, Socket},
};
use millrace_wire::{
    Code, Error, EventId, Hlc, Peer, Result,
    protocol::{Decode, Failure, Frame, Message},
};
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// To find a host, for each of its addresses, and for its first answer.
const CONNECT_MS: u32 = 5_000;

/// Whether the connection is no longer needed.
pub(crate) type IsStopping = Arc<dyn Fn() -> bool + Send + Sync>;

/// The host at the other end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Other {
    pub namespace: u64,
    pub epoch: u32,
}

/// A message from a connection.
pub(crate) enum Answer<T> {
    /// A message.
    Taken(T),
    /// The request of this number failed.
    Failed(u64, Error),
}

/// A connection over which the handshake is done.
pub(crate) struct Line {
    socket: Socket,
    pub other: Other,
}

impl Line {
    /// Connects and does the handshake; gives up soon once `is_stopping` returns true. `opened` gets a handle that cuts the connection.
    /// `ca` names the authorities that identify hosts whose key is not known.
    pub fn connect(
        peer: &Peer,
        ca: Option<&Path>,
        is_stopping: IsStopping,
        opened: impl FnOnce(HangUp),
    ) -> Result<Self> {
        Self::connect_by(peer, Options { ca: ca.map(Path::to_owned), ..Options::default() }, is_stopping, opened)
    }

    fn connect_by(peer: &Peer, options: Options, is_stopping: IsStopping, opened: impl FnOnce(HangUp)) -> Result<Self> {
        let options = Options {
            connect_timeout_ms: CONNECT_MS,
            request_timeout_ms: 0, // each wait has a bound of its own
            silence_max_ms: u32::try_from(patience::link().as_millis()).unwrap_or(u32::MAX),
            name: SOFTWARE.into(),
            interrupted: Some(is_stopping),
            ..options
        };
        let dialled = Dialled::dial(&Place::Tcp(peer.clone()), &options).map_err(of_link)?;
        let hang_up = dialled.hang_up();
        opened(hang_up.map_err(|error| Code::LinkUnreachable.error(format!("{}: {error}", peer.authority())))?);
        let socket = dialled.greet().map_err(of_link)?;
        let other = Other { namespace: socket.host.namespace, epoch: socket.host.epoch };
        Ok(Line { socket, other })
    }

    /// Adds a request to what is to be sent; returns its number.
    pub fn send<M: Message>(&mut self, clock: Hlc, message: &M) -> Result<u64> {
        self.socket.saw(clock);
        self.socket.put(message, 0, EventId::NONE).map_err(of_link)
    }

    /// Adds a message under a number that was given before.
    pub fn send_as<M: Message>(&mut self, request: u64, clock: Hlc, message: &M) {
        self.socket.saw(clock);
        self.socket.put_under(request, message, EventId::NONE);
    }

    /// When something came last.
    pub fn heard(&self) -> Instant {
        self.socket.heard()
    }

    /// Sends what was added.
    pub fn flush(&mut self) -> Result<()> {
        self.socket.flush(None).map_err(of_link)
    }

    /// The first answer before `deadline`, which `take` turns into what is wanted; a failure in its place is the error.
    pub fn receive<T>(&mut self, deadline: Instant, take: impl FnOnce(&Frame<'_>) -> Result<T>) -> Result<T> {
        let taken = self.poll(deadline.saturating_duration_since(Instant::now()), take)?;
        taken.ok_or_else(|| Code::LinkSilent.error("no answer arrived"))
    }

    /// The next message, if one comes within `patience`; meanwhile, makes sure that the other host is there.
    ///
    /// # Errors
    ///
    /// A failure in its place, the end of the connection, or silence for too long.
    pub fn poll<T>(&mut self, patience: Duration, take: impl FnOnce(&Frame<'_>) -> Result<T>) -> Result<Option<T>> {
        Ok(match self.answer(patience, take)? {
            Some(Answer::Taken(taken)) => Some(taken),
            Some(Answer::Failed(_, error)) => return Err(error),
            None => None,
        })
    }

    /// The same, where failures are answers: to which request.
    pub fn answer<T>(
        &mut self,
        patience: Duration,
        take: impl FnOnce(&Frame<'_>) -> Result<T>,
    ) -> Result<Option<Answer<T>>> {
        // An error of `take` is the link's own, distinguished from errors of the connection.
        let answer = self.socket.next(patience, |frame| {
            Ok(match frame.kind {
                Failure::TYPE => Ok(Answer::Failed(frame.heading.request, failure(frame)?)),
                _ => take(frame).map(Answer::Taken),
            })
        });
        answer.map_err(of_link)?.transpose()
    }
}

/// An error of the connection as one of a link: the host cannot be reached, or it does not answer.
fn of_link(error: Error) -> Error {
    let code = match error.code() {
        Code::ConnectFailed
        | Code::ConnectTimeout
        | Code::ConnectionLost
        | Code::CallInterrupted
        | Code::HostCodeUnknown => Code::LinkUnreachable,
        Code::PeerSilent | Code::RequestTimeout => Code::LinkSilent,
        _ => return error,
    };
    code.error(error.detail())
}

/// The error in a FAILURE; an unknown code is still shown.
fn failure(frame: &Frame<'_>) -> Result<Error> {
    let failure: Failure<'_> = frame.message()?;
    Ok(match Code::from_id(failure.code) {
        Some(code) => code.error(failure.detail),
        None => Code::LinkUnreachable.error(format!("{}: {}", failure.code, failure.detail)),
    })
}

/// A message of a type that has to come here.
pub(crate) fn expect<'b, M: Message + Decode<'b>>(frame: &Frame<'b>) -> Result<M> {
    frame.message()
}

/// The same for one that borrows nothing.
pub(crate) fn owned<M: Message + for<'b> Decode<'b>>(frame: &Frame<'_>) -> Result<M> {
    frame.message()
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_client::Resolve;
    use std::{net::TcpListener, sync::mpsc, thread};

    fn peer(authority: &str) -> Peer {
        format!("mr://{authority}/farm").parse::<millrace_wire::Address>().unwrap().peer
    }

    #[test]
    fn a_hanging_name_service_delays_no_link_and_no_shutdown() {
        let (open, closed) = mpsc::sync_channel::<()>(0);
        let closed = std::sync::Mutex::new(closed);
        // It answers only once the test has ended.
        let hangs: Resolve = Arc::new(move |_, _| {
            let _ = closed.lock().unwrap().recv();
            Ok(Vec::new())
        });
        let options = Options { resolve: Some(hangs), ..Options::default() };
        let stopped = Line::connect_by(&peer("far.example"), options, Arc::new(|| true), |_| panic!("it connected"));
        let error = stopped.err().expect("nobody answers");
        assert_eq!(error.code(), Code::LinkUnreachable, "{error}");
        drop(open);
    }

    #[test]
    fn a_host_that_says_nothing_is_left_as_soon_as_the_connection_is_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = peer(&listener.local_addr().unwrap().to_string());
        let (sender, receiver) = mpsc::channel();
        let cut = thread::spawn(move || receiver.recv().map(|hang_up: HangUp| hang_up.hang_up()));
        let error = Line::connect(&silent, None, Arc::new(|| false), |hang_up| sender.send(hang_up).unwrap()).err();
        assert_eq!(error.expect("nobody greets").code(), Code::LinkUnreachable);
        cut.join().unwrap().unwrap();
    }
}

//! Sends: an outbox, or a relay to another host.

use super::{
    End, Link,
    line::{self, Line},
    pace::Pace,
};
use millrace_node::links::{LinkKey, Sender, Stop, Verdict};
use millrace_wire::{
    Code, Error, Result,
    protocol::{Delivered, Linked},
};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Records of one delivery, in bytes: what the other side takes in one read costs it no copy.
const BATCH_BYTES: usize = 192 << 10;
/// Deliveries that may be unanswered; and their bytes, unless one alone has more.
const WINDOW: usize = 32;
const WINDOW_BYTES: usize = 4 << 20;
/// A delivery must be answered within this, however slow the disk of the other side is.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// For the answer that opens the stream: it waits for a flush of the other side.
const OPEN_PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait for something to send before checking whether the link has changed.
const IDLE: Duration = Duration::from_millis(200);
/// The longest pause that the other side may ask for.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// A delivery in flight.
struct Flight {
    records: u64,
    bytes: usize,
    sent: Instant,
}

/// One connection, from opening the stream to its end.
pub(super) fn run(link: &Link, mut sender: Sender, pace: &mut Pace) -> Result<End> {
    let peer = sender.address().expect("a sender that pushes has an address").peer.clone();
    if matches!(link.key, LinkKey::Outbox(_)) && sender.acked() == sender.newest() && !sender.is_moved() {
        // Nothing to send: no reason to be connected.
        link.settled();
        wait(link, &mut sender)?;
        return Ok(End::Again);
    }
    let clock = || link.namespace.journal().clock();
    let mut line = Line::connect(&peer, link.shared.ca.as_deref(), link.is_stopping(), |hang_up| link.opened(hang_up))?;
    let hello = sender.hello()?;
    let opening = line.send(clock(), &hello.link())?;
    line.flush()?;
    let linked = line.receive(Instant::now() + OPEN_PATIENCE, line::owned::<Linked>);
    let linked = linked.map_err(|error| if ends_link(&error) { sender.stop(error) } else { error })?;
    if let Err(error) = sender.linked(&linked) {
        if error.code() == Code::LinkForked {
            // Its operator has to know, too. The answer is a refusal.
            line.send_as(opening, clock(), &hello.link_forked());
            line.flush()?;
            let _ = line.receive(Instant::now() + OPEN_PATIENCE, line::owned::<Linked>);
        }
        return Err(ended(link, error));
    }
    link.contact();
    pace.succeeded();
    if hello.path.is_empty() && hello.target.is_some() {
        // The relay was removed, and now the other side knows.
        if let LinkKey::Relay(id) = link.key {
            link.links.forget_relay(id)?;
        }
        return Ok(End::Gone);
    }
    carry(link, &mut sender, &mut line, opening)
}

/// Sends and receives until the connection ends.
fn carry(link: &Link, sender: &mut Sender, line: &mut Line, opening: u64) -> Result<End> {
    let mut flights: VecDeque<Flight> = VecDeque::new();
    let (mut flying, mut is_over) = (0, false);
    loop {
        if link.shared.is_stopping() {
            return Ok(End::Gone);
        }
        while !is_over && flights.len() < WINDOW && (flying < WINDOW_BYTES || flights.is_empty()) {
            // Before each delivery: a busy stream never pauses, and a circle least of all.
            is_over = sender.is_overtaken()? || sender.is_path_stale();
            if is_over {
                break; // What is in flight is still answered.
            }
            let Some(batch) = sender.next(BATCH_BYTES).map_err(|error| ended(link, error))? else { break };
            line.send(link.namespace.journal().clock(), &batch.deliver(opening))?;
            flying += batch.bytes();
            flights.push_back(Flight { records: batch.records() as u64, bytes: batch.bytes(), sent: Instant::now() });
            line.flush()?;
        }
        let Some(oldest) = flights.front() else {
            if is_over {
                return Ok(End::Again);
            }
            idle(link, sender, line)?;
            continue;
        };
        if oldest.sent.elapsed() > ANSWER_PATIENCE {
            return Err(Code::LinkSilent.error("a delivery was not answered for 60 s"));
        }
        let answer = line.poll(Duration::from_secs(1), line::owned::<Delivered>)?;
        let Some(delivered) = answer else { continue };
        let flight = flights.pop_front().expect("looked at above");
        flying -= flight.bytes;
        link.contact();
        if let Some(refused) = &delivered.refused {
            tracing::info!(target: "links", link = ?link.key, code = refused.code, "a delivery was refused: {}", refused.detail);
        }
        match sender.answered(&delivered).map_err(|error| ended(link, error))? {
            Verdict::Go if delivered.refused.is_none() => link.well(flight.records, flight.bytes as u64),
            Verdict::Go | Verdict::Drain => {}
            Verdict::Retry(..) if is_over => {}
            Verdict::Retry(after, error) => link.pause(&error, after.min(RETRY_MAX)),
        }
    }
}

/// Nothing is in flight and nothing is to be sent: waits for something, at most for a moment.
fn idle(link: &Link, sender: &Sender, line: &mut Line) -> Result<()> {
    if sender.wait(IDLE)? {
        return Ok(());
    }
    // Keeps the connection alive, and detects its end.
    let heard = line.poll(Duration::ZERO, |_| Ok(()))?;
    if heard.is_some() {
        return Err(Code::MessageUnexpected.error("an answer without a request"));
    }
    link.contact_at(line.heard());
    Ok(())
}

/// Waits for the first message, or for a change of the link.
fn wait(link: &Link, sender: &mut Sender) -> Result<()> {
    while !link.shared.is_stopping() && !sender.wait(IDLE)? && !sender.is_overtaken()? {}
    Ok(())
}

/// Whether a refusal to open the stream is permanent. A missing log may be created later.
fn ends_link(error: &Error) -> bool {
    matches!(
        error.code(),
        Code::RelayCircle
            | Code::LogInternal
            | Code::NameInvalid
            | Code::LogNameInvalid
            | Code::LinkStopped
            | Code::LinkForked
    )
}

/// Reports why a link ended to readers of its state, while its thread still runs.
fn ended(link: &Link, error: Error) -> Error {
    link.live().error = Some(Stop::of(&error));
    error
}

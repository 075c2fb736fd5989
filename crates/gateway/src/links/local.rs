//! A relay between two logs of one namespace: the same streams, without a line.

use super::{End, Link, pace::Pace};
use millrace_node::links::{Sender, Verdict};
use millrace_wire::Result;
use std::time::Duration;

const BATCH_BYTES: usize = 256 << 10;
const IDLE: Duration = Duration::from_millis(200);

pub(super) fn run(link: &Link, mut sender: Sender, pace: &mut Pace) -> Result<End> {
    let inbox = link.links.inbox();
    let hello = sender.hello()?;
    let (inbound, linked) = sender.open_here(&hello)?;
    sender.linked(&linked.value)?;
    link.contact();
    pace.succeeded();
    while !link.shared.is_stopping() {
        // Before each delivery: a busy stream never pauses.
        if sender.is_overtaken()? || sender.is_path_stale() {
            return Ok(End::Again);
        }
        let Some(batch) = sender.next(BATCH_BYTES)? else {
            link.settled();
            sender.wait(IDLE)?;
            continue;
        };
        let accepted = inbox.accept(&inbound, hello.epoch, &batch.deliver(0))?;
        // Here and there are one journal: what is not safe here is lost there with it.
        match sender.answered(&accepted.value)? {
            Verdict::Go | Verdict::Drain => link.well(batch.records() as u64, batch.bytes() as u64),
            Verdict::Retry(after, error) => link.pause(&error, after),
        }
    }
    Ok(End::Gone)
}

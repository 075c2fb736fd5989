//! tail.lag: from an append to a client that follows the log.

use super::{Host, PACE, append::frame_bytes};
use crate::{
    Context, Outcome,
    measure::{Repeated, Samples, wall_ns},
    peers::echo::Echo,
    rows::{Measured, PAYLOAD},
};
use millrace_client::{AppendOptions, TailOptions};
use std::{sync::mpsc, thread, time::Duration};

pub fn lag(context: &Context) -> Outcome<Measured> {
    let host = Host::start(context, 1 << 20)?;
    let (request, _) = frame_bytes();
    // A record goes the whole way: to the host as an append, and on to the reader as an answer of about the same size.
    let mut echo = Echo::start(request, request)?;
    let writer = host.client("memory")?;
    let mut tail = host.client("memory")?.tail("a", 1, TailOptions::default())?;
    let (sender, seen) = mpsc::channel::<u64>();
    thread::spawn(move || {
        // It ends when the host does, or when nobody listens any more.
        while let Ok(record) = tail.next() {
            let sent = record.data.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            if sender.send(wall_ns().saturating_sub(sent)).is_err() {
                return;
            }
        }
    });
    let count = 400;
    let (mut all, mut echoes) = (Samples::new(), Samples::new());
    let (mut p50, mut ratio) = (Repeated::default(), Repeated::default());
    for round in 0..=context.repetitions(9) {
        let (mut now, mut echo_now) = (Samples::new(), Samples::new());
        echo.paced(count, PACE, &mut echo_now)?;
        let mut data = PAYLOAD;
        for _ in 0..count {
            thread::sleep(PACE);
            data[..8].copy_from_slice(&wall_ns().to_le_bytes());
            writer.append("a", &data, AppendOptions::default())?;
            now.record_ns(seen.recv_timeout(Duration::from_secs(20))?);
        }
        if round > 0 {
            // The first round warms up.
            p50.push(now.p50_us());
            ratio.push(now.p50_us() / echo_now.p50_us());
            all.add(&now);
            echoes.add(&echo_now);
        }
    }
    let note = format!(
        "One client appends 1 KiB with durability memory, and another client in the same process follows the log. \
         Value: the time from just before the append until the follower has the record, by the same clock; the next \
         append is 500 µs later. Echo: a record's bytes to a process and back, at the same pace, alternating with the \
         appends: two wake-ups and two messages. The append and its delivery need a third message, the answer to the \
         appender, which is sent first and wakes the appender on one of two processors; they also need a commit, a \
         read through the gate and two frames. If one event loop serves both clients, the host makes four system \
         calls for a record (`strace`): it waits, receives, answers, sends; with two event loops, a fifth call wakes \
         the other loop. Ratio in the same repetition: {}.",
        ratio.spread()
    );
    Ok(Measured::new(p50.median(), all.count())
        .spread_us(&all)
        .target("p50 ≤ 2 × echo", ratio.median() <= 2.0)
        .also("ratio to echo", ratio.median(), "")
        .peer("echo, p50", echoes.p50_us())
        .peer("echo, p99", echoes.p99_us())
        .note(note))
}

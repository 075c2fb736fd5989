//! What is going on: tasks of pools, failures, and what runs print.

use crate::{HostStatus, Namespace, RunState, pools};
use millrace_documents::{FailureDoc, FailuresDoc, OutputDoc, PoolDoc, RecordName, TasksDoc, id_text, rfc3339};
use millrace_namespace::runs::tasks::{self, RAISED};
use millrace_wire::{EventId, Hlc, Name, Result};

/// The longest part of an output in one document.
const OUTPUT_PART_MAX_BYTES: usize = 64 << 10;
/// How many results of a pool are looked at, and after how many bytes no more are.
const RESULTS_READ_MAX: u64 = 200;
const RESULTS_READ_MAX_BYTES: usize = 4 << 20;

/// The pools of a namespace; `host` knows which of their tasks are in progress.
pub fn tasks(namespace: &Namespace, host: Option<&HostStatus>) -> Result<TasksDoc> {
    let mut doc = TasksDoc::default();
    for stat in namespace.functions()? {
        let Ok(definition) = &stat.definition else { continue };
        let Some(pool) = pools::of(&definition.spec) else { continue };
        let live = host.and_then(|host| host.function(&stat.name));
        let running = live.map_or(0, |live| live.running.len() as u64).min(stat.pending());
        let retrying = live.map_or(0, |live| live.backing_off.len() as u64).min(stat.pending() - running);
        let mut of_pool = PoolDoc {
            pool: pool.to_owned(),
            function: stat.name.to_string(),
            runtime: definition.spec.runtime.to_string(),
            workers: definition.spec.concurrency,
            queued: stat.pending() - running - retrying,
            running,
            retrying,
            done: stat.done,
            failed: stat.dead_letters.given_up,
            ..PoolDoc::default()
        };
        count_results(namespace, &mut of_pool)?;
        doc.pools.push(of_pool);
    }
    doc.pools.sort_by(|a, b| a.pool.cmp(&b.pool));
    Ok(doc)
}

/// Counts the exceptions among the newest results of a pool.
fn count_results(namespace: &Namespace, pool: &mut PoolDoc) -> Result<()> {
    let Ok(log) = namespace.log(&tasks::results(&pool.pool)) else { return Ok(()) };
    let (mut payload, mut bytes) = (Vec::new(), 0);
    for seqno in (log.earliest().max(1)..=log.latest()).rev().take(RESULTS_READ_MAX as usize) {
        let found = namespace.journal().get(&log, seqno, &mut payload);
        let Ok(meta) = found else { continue };
        pool.last.get_or_insert_with(|| rfc3339(meta.hlc));
        pool.results += 1;
        pool.raised += u64::from(payload.first() == Some(&RAISED));
        bytes += payload.len();
        if bytes > RESULTS_READ_MAX_BYTES {
            break;
        }
    }
    Ok(())
}

/// The dead letters since a moment, of one function or of all, by function and error.
pub fn failures(
    namespace: &Namespace,
    since: Option<Hlc>,
    function: Option<&Name>,
    check: &dyn Fn() -> Result<()>,
) -> Result<FailuresDoc> {
    let found = namespace.failures(since.unwrap_or(Hlc::ZERO), function, check)?;
    let failures = found.groups.into_iter().map(|group| FailureDoc {
        function: group.function.to_string(),
        code: group.code,
        letters: group.letters,
        waiting: group.waiting,
        first: rfc3339(group.times.0),
        last: rfc3339(group.times.1),
        run: id_text(group.run),
        record: RecordName { log: Some(group.record.0), seqno: group.record.1 },
        error: group.error,
        dead_letter: group.dead_letter.to_string(),
    });
    Ok(FailuresDoc { failures: failures.collect(), letters: found.letters, more: found.more })
}

/// The part of `text` from a byte on, which may be in the middle of a character.
fn behind(text: &str, from: u64) -> &str {
    let from = usize::try_from(from).unwrap_or(usize::MAX).min(text.len());
    &text[text.floor_char_boundary(from)..]
}

/// What a run has printed behind its first `from` bytes: while it is in progress, as far as this process executes it.
pub fn output(namespace: &Namespace, id: &str, from: u64) -> Result<OutputDoc> {
    let id: EventId = match id {
        "latest" => super::run_named(namespace, id)?.id.parse()?,
        id => id.parse()?,
    };
    // Asked first: what is printed between the two questions comes with the next part.
    let run = namespace.run(id)?;
    let printed = namespace.printed().part(id, from, OUTPUT_PART_MAX_BYTES);
    let state = super::state_word(run.state).to_owned();
    let doc = OutputDoc { run: id.to_string(), state, from, next: from, ..OutputDoc::default() };
    if let Some(part) = printed.filter(|part| !part.bytes.is_empty()) {
        // The rest of a character may come with the next part.
        let whole = if part.bytes.len() > 4 { whole(&part.bytes) } else { part.bytes.len() };
        let text = String::from_utf8_lossy(&part.bytes[..whole]).into_owned();
        return Ok(OutputDoc { from: part.from, next: part.from + whole as u64, text, ..doc });
    }
    let is_over = !matches!(run.state, RunState::Pending | RunState::Started);
    let Some(ending) = run.ending.filter(|_| is_over) else { return Ok(doc) };
    // What the journal has may be shorter than what was printed, with a note about what was left out.
    let text = behind(&ending.output, from).to_owned();
    let next = from.max(ending.output.len() as u64);
    Ok(OutputDoc { next, text, ended: true, ..doc })
}

/// How many of the bytes are whole characters, or none at all.
fn whole(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_behind_a_character() {
        assert_eq!((whole("aé".as_bytes()), whole(&"aé".as_bytes()[..2]), whole(b"a\xff")), (3, 1, 2));
        assert_eq!((behind("aé", 0), behind("aé", 2), behind("aé", 9)), ("aé", "é", ""));
    }
}

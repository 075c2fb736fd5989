//! Records that a part sent too late for the repair that it belongs to.
//!
//! ```text
//!  part prepared ── its fence comes down: the initiator or its connection is slow, or the part's own host ended ── runs end with old
//!  values; the records that they send arrive elsewhere ── the part switches, replays the runs, and finds that these records change
//! ```
//!
//! The initiator has switched by then. So its host opens another repair across the same namespaces, whose corrections are the changes of
//! those records, and applies it. If a part is late again, another repair follows.

use super::{Peers, read_sent};
use crate::{
    across::seeds,
    book::{LateOf, Note, Phase, Repair, note, repairs},
    open::{WINDOW, WINDOW_BYTES, check_none_open, step},
};
use millrace_namespace::Namespace;
use millrace_wire::{Code, Result};
use std::collections::BTreeMap;

/// Opens another repair for the records that the participant with this part sent after it had promised to switch, unless there already is
/// one.
pub(super) fn correct(
    namespace: &Namespace,
    peers: &mut dyn Peers,
    of: &Repair,
    (address, part): (&str, u64),
) -> Result<()> {
    let late_of = LateOf { repair: of.repair, address: address.to_owned() };
    let known = repairs(namespace)?.into_iter().find(|known| known.late_of.as_ref() == Some(&late_of));
    if known.as_ref().is_some_and(|known| known.phase != Phase::Open) {
        return Ok(());
    }
    // By namespace; none for this one.
    let mut targets = BTreeMap::from([(namespace.journal().namespace().to_string(), None)]);
    let mut seeds: BTreeMap<Option<String>, Vec<_>> = BTreeMap::new();
    for sent in read_sent(peers, address, part)?.into_iter().filter(|sent| sent.late) {
        if targets.len() == 1 {
            for member in of.across.iter().filter(|member| member.address != address) {
                let id = peers.meet(&member.address)?;
                targets.insert(id.clone(), Some(id));
            }
        }
        let target = sent.to.as_ref().map(|to| targets.get(to));
        // If it was not sent there before, the corresponding record is unknown.
        let is_for_us = target.map_or(sent.message, |target| target.is_some());
        if is_for_us && !sent.arrived {
            let error = format!("changed records have not yet arrived in '{}'", sent.address);
            return Err(Code::RepairPeer.error(error));
        }
        if let Some(Some(target)) = target {
            seeds.entry(target.clone()).or_default().push(sent.seed.seed()?);
        }
    }
    if seeds.is_empty() {
        return Ok(());
    }
    // If the host ended before it had noted everything, the rest is noted now: a repeated note changes nothing.
    let number = match known {
        Some(known) => known.repair,
        None => open(namespace, of, late_of)?,
    };
    for (to, seeds) in seeds {
        seeds::give(namespace, number, to.as_deref(), &seeds)?;
    }
    step(namespace, number, &[Phase::Open], "run", &Note::Run { repair: number }).map(drop)
}

/// Opens a repair without corrections: they come as seeds.
fn open(namespace: &Namespace, of: &Repair, late_of: LateOf) -> Result<u64> {
    check_none_open(namespace)?;
    let journal = namespace.journal();
    let reason = format!("records that {} forwarded late, repair {}", late_of.address, of.repair);
    let pin = journal.pin(&format!("repair: {reason}"), WINDOW_BYTES, WINDOW)?.id;
    let opened = journal.commit(|tx| {
        check_none_open(namespace)?;
        let across = of.across.iter().map(|member| member.address.clone()).collect();
        let (log, undo, code, part_of, late_of) = (None, None, None, None, Some(late_of));
        let (auto, append_new, accept_unknown) = (false, of.append_new, of.accept_unknown);
        let run_external = of.run_external.clone();
        #[rustfmt::skip]
        let open = Note::Open {
            reason, log, records: 0, undo, code, append_new, auto, across, part_of, late_of, accept_unknown, run_external, pin,
        };
        note(tx, &open)
    });
    opened.inspect_err(|_| drop(journal.unpin(pin))).map(|opened| opened.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Correction, Counts, Request, repair};
    use millrace_namespace::{AppendOptions, CreateOptions, Durability};
    use millrace_wire::EventId;

    const B: &str = "mr://b.test:7070/n";
    const C: &str = "mr://c.test:7070/n";
    const LATE: &str = "00000000000b-1-23";

    /// A participant that sent one record to another participant too late.
    struct Lines;

    impl Peers for Lines {
        fn meet(&mut self, address: &str) -> Result<String> {
            Ok(if address == B { "00000000000b" } else { "00000000000c" }.into())
        }

        fn ask(&mut self, address: &str, _: &str) -> Result<String> {
            panic!("asked {address}")
        }

        fn show(&mut self, address: &str, path: &str) -> Result<String> {
            assert_eq!((address, path), (B, "repairs/7/sent?after=0"));
            let record = format!(r#""id": "{LATE}", "data": "new", "message": true, "arrived": true, "late": true"#);
            Ok(format!(r#"{{"sent": [{{"to": "00000000000c", "address": "{C}", {record}}}], "next": null}}"#))
        }
    }

    #[test]
    fn a_further_repair_whose_host_ended_before_it_was_started_is_completed_once() {
        let dir = tempfile::tempdir().unwrap();
        let options = CreateOptions { durability: Durability::Memory, ..CreateOptions::default() };
        let namespace = Namespace::create(&dir.path().join("n"), &options).unwrap();
        namespace.create_log(&"raw".parse().unwrap(), 100).unwrap();
        namespace.append("raw", b"old", AppendOptions::default()).unwrap();
        let first = Request {
            log: "raw".parse().unwrap(),
            corrections: vec![Correction { seqno: 1, value: Some(b"new".to_vec()) }],
            reason: String::new(),
            accept_unknown: false,
            append_new: false,
            across: vec![B.into(), C.into()],
            run_external: Vec::new(),
        };
        let first = crate::open(&namespace, first).unwrap();
        let counts = Counts::default();
        let applied = Note::Applied {
            repair: first,
            counts,
            deployed: None,
            not_run: Vec::new(),
            topics: Vec::new(),
            late: false,
        };
        namespace.journal().commit(|tx| note(tx, &applied)).unwrap();
        let of = repair(&namespace, first).unwrap();

        // The host has opened the repair, and ends.
        let further = open(&namespace, &of, LateOf { repair: first, address: B.into() }).unwrap();
        assert_eq!(repair(&namespace, further).unwrap().phase, Phase::Open);
        // The next host asks the participant again, and gets the same answer.
        for _ in 0..2 {
            correct(&namespace, &mut Lines, &of, (B, 7)).unwrap();
            assert_eq!(repairs(&namespace).unwrap().len(), 2);
            assert_eq!(repair(&namespace, further).unwrap().phase, Phase::Running);
            let seeds = seeds::of_others(&namespace, further).unwrap();
            let [(to, seed)] = &seeds[..] else { panic!("{} records", seeds.len()) };
            assert_eq!((&**to, seed.id), ("00000000000c", LATE.parse::<EventId>().unwrap()));
            assert_eq!(seed.value.as_deref(), Some(&b"new"[..]));
        }
    }
}

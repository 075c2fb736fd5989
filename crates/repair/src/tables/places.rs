//! Which slots of tables the changes of a replayed run take, and what is in them.

use super::{Lookup, Version};
use crate::{
    calls::Leaving,
    past::Run,
    session::Session,
    settle::{Content, RowOf},
};
use millrace_journal::{KeyedRead, Log, Operation, Reads};
use millrace_namespace::tables::batch::Sight;
use millrace_wire::{Code, Result};
use std::collections::{BTreeMap, HashMap};

impl Session<'_> {
    /// What the changes of a replayed run are as records: by their number, nothing for a deletion of a key that has no value. What a deletion
    /// finds is a read.
    pub(crate) fn contents(
        &self,
        run: &Run,
        appends: &[Leaving],
        reads: &mut Reads,
    ) -> Result<HashMap<usize, Option<Content>>> {
        let lookup = Lookup { past: &self.past, overlay: Some(&self.overlay) };
        let catalog = self.namespace.journal().catalog()?;
        let mut local: HashMap<(u32, &[u8]), Sight> = HashMap::new();
        let mut contents = HashMap::new();
        for (number, append) in appends.iter().enumerate() {
            let Some(change) = &append.change else { continue };
            let options = catalog.log_by_id(append.log).and_then(Log::table).copied().unwrap_or_default();
            // A run's changes are made when it is published: after everything that stands before its end.
            let is_other = |version: &Version| !run.appends.contains(&(append.log, version.slot));
            let sight = match local.remove(&(append.log, &*change.key)) {
                Some(sight) => sight,
                None => {
                    let held = lookup.find(append.log, &change.key, (run.done, 0), is_other);
                    let version = held.version.filter(|version| version.has_value(change.now_us));
                    if change.operation == Operation::Delete {
                        reads.keyed(&match version {
                            Some(_) => KeyedRead::Found { log: append.log, seqno: held.shown },
                            None => KeyedRead::Absent { log: append.log, key: &change.key },
                        });
                    }
                    let value = version.map(|version| self.namespace.journal().entry_at(version.at));
                    let value = value.transpose()?.map(|entry| entry.payload);
                    Sight { value, expires_us: version.map_or(0, |it| it.expires_us), ..Sight::default() }
                }
            };
            let (mut after, had_value) = (sight.clone(), sight.value.is_some());
            let of = (change.operation, &*append.payload, change.ttl_ms, change.amount);
            let applied = after.apply(&change.key, &options, of, change.now_us);
            applied.map_err(|error| {
                let (run, detail) = (run.trigger.run, error.detail());
                Code::RepairUnsupported.error(format!("run {run}: {detail}"))
            })?;
            let content = match change.operation {
                Operation::Delete if !had_value => None,
                _ => Some(Content {
                    bytes: after.value.clone().unwrap_or_default(),
                    row: RowOf {
                        key: change.key.clone(),
                        operation: change.operation,
                        expires_us: after.expires_us,
                        amount: change.amount,
                    },
                }),
            };
            contents.insert(number, content);
            local.insert((append.log, &*change.key), after);
        }
        Ok(contents)
    }

    /// The slots of a run in a table that its changes take, by their number: those of the same key first, then what is left. What has no slot
    /// is appended later. Changes of one key stay in their order.
    pub(crate) fn slots_of(
        &self,
        run: &Run,
        log: u32,
        contents: &BTreeMap<usize, &Content>,
    ) -> (HashMap<usize, u64>, Vec<u64>) {
        let live = self.past.logs.get(&log).and_then(|log| log.versions.as_deref());
        let own = run.appends.iter().filter(|(of, _)| *of == log).map(|(_, seqno)| *seqno);
        let mut free: Vec<(u64, Option<Vec<u8>>)> =
            own.map(|seqno| (seqno, live.and_then(|live| live.of_slot(seqno)).map(|(key, _)| key.to_vec()))).collect();
        let mut taken: HashMap<usize, u64> = HashMap::new();
        for (number, content) in contents {
            let is_its = |(_, key): &(u64, Option<Vec<u8>>)| key.as_ref() == Some(&content.row.key);
            if let Some(at) = free.iter().position(is_its) {
                taken.insert(*number, free.remove(at).0);
            }
        }
        let rest = contents.keys().filter(|number| !taken.contains_key(number)).copied().collect::<Vec<_>>();
        let mut free = free.into_iter().map(|(seqno, _)| seqno);
        for number in rest {
            let Some(seqno) = free.next() else { break };
            taken.insert(number, seqno);
        }
        let mut by_key: HashMap<&[u8], Vec<usize>> = HashMap::new();
        for (number, content) in contents {
            by_key.entry(&content.row.key).or_default().push(*number);
        }
        for numbers in by_key.values() {
            let mut slots: Vec<u64> = numbers.iter().filter_map(|number| taken.remove(number)).collect();
            slots.sort_unstable();
            taken.extend(numbers.iter().copied().zip(slots));
        }
        (taken, free.collect())
    }
}

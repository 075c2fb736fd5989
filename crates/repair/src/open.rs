//! Requests about repairs: open, run, apply, roll back, abandon. Any process may make a request; the host, or the process that holds its
//! lock, carries it out.

use crate::{
    across::{MEMBERS_MAX, seeds},
    book::{self, NewCode, Note, PartOf, Phase, Repair, note, repair, repairs},
    session::{SLOTS_MAX, replaced_by},
    settle::RowOf,
};
use millrace_journal::{Log, Operation, Position, Restates, Row as Keyed, Transaction};
use millrace_namespace::{Definition, Namespace, names::check_public, no_function};
use millrace_wire::{Code, Error, EventId, LogName, Name, Result};
use std::time::Duration;

/// How long an applied repair can be rolled back.
pub(crate) const WINDOW: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How much the journal may grow in that time.
pub(crate) const WINDOW_BYTES: u64 = 16 << 30;
/// Bytes of corrections that are committed at once.
pub(crate) const BATCH_BYTES: usize = 128 << 10;

/// A past record and its new value, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correction {
    /// Its seqno.
    pub seqno: u64,
    /// Its new value; `None` removes the record.
    pub value: Option<Vec<u8>>,
}

/// The corrections.
#[derive(Clone, Debug)]
pub struct Request {
    /// The log.
    pub log: LogName,
    /// Its records, each once.
    pub corrections: Vec<Correction>,
    /// Why, for people.
    pub reason: String,
    /// Whether the runs that read the oldest of the records may be unknown.
    pub accept_unknown: bool,
    /// Whether additional records of replayed runs are appended when the repair is applied.
    pub append_new: bool,
    /// The addresses of the namespaces that take part, as [`crate::Peers`] reaches them.
    pub across: Vec<String>,
    /// Functions that are replayed although they may have effects outside the namespace; these effects are repeated.
    pub run_external: Vec<Name>,
}

/// A function whose past runs are replayed with other code.
#[derive(Clone, Debug)]
pub struct CodeRequest {
    /// The new definition of the function. Its code is in the namespace.
    pub definition: Definition,
    /// The revision of the function that the definition was made from.
    pub revision: u32,
    /// Runs whose FIRED has this sequence or a later one are replayed.
    pub since: u64,
    /// Why, for people.
    pub reason: String,
    /// As in [`Request`].
    pub append_new: bool,
    /// As in [`Request`].
    pub across: Vec<String>,
    /// As in [`Request`].
    pub run_external: Vec<Name>,
}

/// The addresses of the participants, each once.
fn members(across: Vec<String>) -> Result<Vec<String>> {
    if across.len() > MEMBERS_MAX {
        let error = format!("{} namespaces take part; the limit is {MEMBERS_MAX}", across.len());
        return Err(Code::CorrectionInvalid.error(error));
    }
    if let Some((at, twice)) = across.iter().enumerate().find(|(at, address)| across[..*at].contains(address)) {
        return Err(Code::CorrectionInvalid
            .error(format!("'{twice}' is named twice; the second time, it is number {}", at + 1)));
    }
    Ok(across)
}

/// Refuses an unknown function in the list of functions that are replayed in spite of effects outside. If other namespaces take part, it
/// may be one of theirs.
pub fn check_functions(namespace: &Namespace, across: &[String], run_external: &[Name]) -> Result<()> {
    let catalog = namespace.journal().catalog()?;
    match run_external.iter().find(|name| across.is_empty() && catalog.function(name).is_none()) {
        Some(unknown) => Err(no_function(unknown)),
        None => Ok(()),
    }
}

pub(crate) fn check_none_open(namespace: &Namespace) -> Result<()> {
    match repairs(namespace)?.iter().find(|repair| repair.phase.is_open()) {
        Some(open) => {
            let (number, phase) = (open.repair, open.phase.as_str());
            Err(Code::RepairOpen.error(format!("repair {number} is {phase}")))
        }
        None => Ok(()),
    }
}

/// Opens a repair and notes its corrections, except those that change nothing; returns its number.
pub fn open(namespace: &Namespace, request: Request) -> Result<u64> {
    check_none_open(namespace)?;
    check_public(&request.log)?;
    let log = namespace.log(&request.log)?;
    // What its owner corrects comes as a new version.
    namespace.check_owned(&log)?;
    let Request { mut corrections, reason, log: name, accept_unknown, append_new, across, run_external } = request;
    let across = members(across)?;
    check_functions(namespace, &across, &run_external)?;
    if corrections.is_empty() || corrections.len() > SLOTS_MAX {
        let error = format!("{} corrections; one repair replaces 1 to {SLOTS_MAX} records", corrections.len());
        return Err(Code::CorrectionInvalid.error(error));
    }
    if log.table().is_some() {
        corrections.iter_mut().try_for_each(|correction| redirect(namespace, &log, correction))?;
    }
    corrections.sort_by_key(|correction| correction.seqno);
    if let Some(error) = too_old(&name, log.earliest(), corrections.iter().map(|correction| correction.seqno)) {
        return Err(error);
    }
    if let Some(twice) = corrections.windows(2).find(|two| two[0].seqno == two[1].seqno) {
        return Err(Code::CorrectionInvalid.error(format!("seqno {} is corrected twice", twice[0].seqno)));
    }
    let (mut payload, mut kept) = (Vec::new(), Vec::with_capacity(corrections.len()));
    for correction in corrections {
        check_length(namespace, &name, &correction, 0)?;
        if check(namespace, &log, &correction, accept_unknown, &mut payload)? {
            kept.push(correction);
        }
    }
    if kept.is_empty() {
        return Err(Code::CorrectionInvalid.error("every correction equals the recorded value"));
    }
    let opening = Opening { reason, append_new, auto: false, across, accept_unknown, run_external };
    let number = begin(namespace, &log, &kept, opening)?;
    ask_run(namespace, number)?;
    Ok(number)
}

/// Refuses a new value that, together with this many other bytes, exceeds the maximum length of a record.
pub(crate) fn check_length(namespace: &Namespace, log: &str, correction: &Correction, more: usize) -> Result<()> {
    let (bytes, most) = (correction.value.as_ref().map_or(0, Vec::len), namespace.journal().record_max_bytes() - more);
    if bytes <= most {
        return Ok(());
    }
    let seqno = correction.seqno;
    Err(Code::RecordTooLong
        .error(format!("the value for record {seqno} of log '{log}' has {bytes} bytes; the limit is {most}")))
}

/// The refusal of corrections of records that have left their log: names them, and those that can still be corrected. The seqnos are in
/// ascending order.
pub fn too_old(log: &str, oldest: u64, seqnos: impl Iterator<Item = u64>) -> Option<Error> {
    let range = |seqnos: &[u64]| match seqnos {
        [] => String::new(),
        [one] => format!("record {one}"),
        [first, .., last] => format!("{} records between {first} and {last}", seqnos.len()),
    };
    let (gone, left): (Vec<u64>, Vec<u64>) = seqnos.partition(|seqno| *seqno < oldest);
    if gone.is_empty() {
        return None;
    }
    let can = match &left[..] {
        [] => "none of these corrections can be made".into(),
        left => format!("{} can still be corrected", range(left)),
    };
    let gone = range(&gone);
    Some(
        Code::CorrectionTooOld.error(format!("log '{log}' no longer has {gone}; its oldest record is {oldest}; {can}")),
    )
}

/// Whether a correction changes something. An error if its record cannot be corrected.
pub(crate) fn check(
    namespace: &Namespace,
    log: &Log,
    correction: &Correction,
    accept_unknown: bool,
    payload: &mut Vec<u8>,
) -> Result<bool> {
    let (journal, name, seqno) = (namespace.journal(), log.name(), correction.seqno);
    let is_value = |(row, _): &(RowOf, Position)| row.operation != Operation::Delete;
    let is_equal = match journal.get(log, seqno, payload) {
        Ok(_) if log.table().is_some() => {
            let was = is_value(&row_of(namespace, log, seqno)?).then_some(&**payload);
            was.is_some() && correction.value.as_deref() == was
        }
        Ok(_) => correction.value.as_deref() == Some(payload),
        Err(error) if error.code() == Code::RecordVoid => correction.value.is_none(),
        Err(error) if error.code() == Code::BelowHistory => {
            let earliest = log.earliest();
            let error = format!("log '{name}' no longer has record {seqno}; the oldest is {earliest}");
            return Err(Code::CorrectionTooOld.error(error));
        }
        Err(error) => return Err(error),
    };
    if let Some((table, value)) = log.table().zip(correction.value.as_deref()) {
        table.check_value(value)?;
    }
    if !is_equal && !accept_unknown && journal.entry_at(journal.position(log, seqno))?.carried {
        let error = format!("record {seqno} of log '{name}' is older than the complete part of the journal");
        return Err(Code::ReadersUnknown.error(error));
    }
    Ok(!is_equal)
}

/// How a repair of records is opened.
pub(crate) struct Opening {
    pub reason: String,
    pub append_new: bool,
    /// Whether the host applies it as soon as it is replayed.
    pub auto: bool,
    pub across: Vec<String>,
    pub accept_unknown: bool,
    pub run_external: Vec<Name>,
}

/// Opens a repair, records its corrections and returns its number. The replay does not start yet.
pub(crate) fn begin(namespace: &Namespace, log: &Log, kept: &[Correction], opening: Opening) -> Result<u64> {
    let (journal, name) = (namespace.journal(), log.name());
    let Opening { reason, append_new, auto, across, accept_unknown, run_external } = opening;
    let pin = journal.pin(&format!("repair of log '{name}'"), WINDOW_BYTES, WINDOW)?.id;
    let (records, of_log) = (kept.len() as u64, Some(name.clone()));
    let opened = journal.commit(|tx| {
        check_none_open(namespace)?; // Somebody else may have been faster.
        let (log, undo, code, part_of, late_of) = (of_log, None, None, None, None);
        #[rustfmt::skip]
        let open = Note::Open {
            reason, log, records, undo, code, append_new, auto, across, part_of, late_of, accept_unknown, run_external, pin,
        };
        note(tx, &open)
    });
    let number = opened.inspect_err(|_| drop(journal.unpin(pin)))?.value;
    let mut rest = kept;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |correction: &&Correction| {
            let first = bytes == 0;
            bytes += 128 + correction.value.as_ref().map_or(0, Vec::len);
            first || bytes <= BATCH_BYTES
        };
        let part = rest.iter().take_while(fits).count();
        let staged = journal
            .commit(|tx| rest[..part].iter().try_for_each(|correction| stage(namespace, tx, number, log, correction)));
        // Nothing would continue it, and it would prevent other repairs.
        staged.inspect_err(|_| drop(abandon(namespace, number)))?;
        rest = &rest[part..];
    }
    Ok(number)
}

/// Opens a repair that replays runs of a function with new code; returns its number.
pub fn open_code(namespace: &Namespace, request: CodeRequest) -> Result<u64> {
    check_none_open(namespace)?;
    let CodeRequest { definition, revision, since, reason, append_new, across, run_external } = request;
    let across = members(across)?;
    check_functions(namespace, &across, &run_external)?;
    let (journal, name) = (namespace.journal(), definition.spec.name.clone());
    let attributes = definition.to_attributes();
    let pin = journal.pin(&format!("repair of function '{name}'"), WINDOW_BYTES, WINDOW)?.id;
    let opened = journal.commit(|tx| {
        check_none_open(namespace)?;
        let function = tx.catalog().function(&name).cloned().ok_or_else(|| no_function(&name))?;
        if function.revision() != revision {
            let error = format!("function '{name}' was deployed while its new code was checked");
            return Err(Code::RepairCodeChanged.error(error));
        }
        let before = function.attributes().to_owned();
        if before == attributes {
            return Err(Code::CorrectionInvalid.error(format!("function '{name}' already has this code")));
        }
        let code =
            NewCode { function: function.id(), name: name.clone(), attributes, before, revision, since, only: None };
        let (log, undo, code, part_of, late_of) = (None, None, Some(code), None, None);
        let (auto, accept_unknown) = (false, false);
        #[rustfmt::skip]
        let open = Note::Open {
            reason, log, records: 0, undo, code, append_new, auto, across, part_of, late_of, accept_unknown, run_external, pin,
        };
        let opened = note(tx, &open)?;
        note(tx, &Note::Run { repair: opened })?;
        Ok(opened)
    });
    let opened = opened.inspect_err(|_| drop(journal.unpin(pin)))?.value;
    journal.wake();
    Ok(opened)
}

/// The refusal to replace a function's code after it was deployed meanwhile.
pub(crate) fn deployed_since(name: &str, repair: u64) -> millrace_wire::Error {
    Code::RepairCodeChanged.error(format!("function '{name}' was deployed or removed since repair {repair}"))
}

fn stage(
    namespace: &Namespace,
    tx: &mut Transaction<'_>,
    repair: u64,
    log: &Log,
    correction: &Correction,
) -> Result<()> {
    let replaced = replaced_by(namespace.journal(), log, correction.seqno, repair, correction.value.is_none())?;
    let (slot, value) = ((log.id(), correction.seqno), correction.value.as_deref().unwrap_or_default());
    let row = match log.table() {
        Some(_) => Some(row_of(namespace, log, correction.seqno)?),
        None => None,
    };
    // The key has the value from there on, whatever was done to it.
    let row = row.as_ref().filter(|_| correction.value.is_some()).map(|(row, previous)| {
        let row = row.keyed(*previous);
        Keyed { operation: Operation::Put, amount: 0, ..row }
    });
    tx.shadow_row(slot, (value, row.as_ref()), (EventId::NONE, 0), &replaced)?;
    Ok(())
}

/// Opens a repair that rolls back the newest applied one; returns its number.
pub fn undo(namespace: &Namespace, number: u64, reason: String) -> Result<u64> {
    check_own(&repair(namespace, number)?)?;
    undo_as(namespace, number, reason, None)
}

/// Has a correction of a record that restates what a key has correct the record whose value that is.
fn redirect(namespace: &Namespace, log: &Log, correction: &mut Correction) -> Result<()> {
    let position = namespace.journal().position(log, correction.seqno);
    if position != Position::default() {
        let entry = namespace.journal().entry_at(position)?;
        let of = entry.row().and_then(|row| row.restates).map(|restates| restates.seqno);
        correction.seqno = of.filter(|of| *of > 0).unwrap_or(correction.seqno);
    }
    Ok(())
}

/// What a record of a table does to its key, or did before a repair removed it, and where the version before it stands.
fn row_of(namespace: &Namespace, log: &Log, seqno: u64) -> Result<(RowOf, Position)> {
    let journal = namespace.journal();
    let mut entry = journal.entry_at(journal.position(log, seqno))?;
    if let Some(replaced) = entry.replaced().filter(|replaced| replaced.void) {
        entry = journal.entry_at(replaced.position)?;
    }
    let no_key = || Code::EntryDamaged.error(format!("record {seqno} of table '{}' has no key", log.name()));
    let row = entry.row().ok_or_else(no_key)?;
    if let Some(Restates { repair, seqno: of }) = row.restates {
        let name = log.name();
        let what = if of == 0 { "that its key has no value".into() } else { format!("record {of}; correct that one") };
        let error = format!("record {seqno} of table '{name}' says, since repair {repair}, {what}");
        return Err(Code::CorrectionInvalid.error(error));
    }
    Ok((RowOf::of(&row), row.previous))
}

/// Opens a part that rolls back an earlier part; returns its number.
pub(crate) fn undo_part(namespace: &Namespace, number: u64, reason: String, part_of: PartOf) -> Result<u64> {
    undo_as(namespace, number, reason, Some(part_of))
}

/// Refuses to roll back a repair unless the history is the one that it left: everything that was applied since has been rolled back.
fn check_order(all: &[Repair], number: u64) -> Result<()> {
    let is_applied = |repair: &&Repair| matches!(repair.phase, Phase::Applied | Phase::RolledBack | Phase::Closed);
    let applied: Vec<&Repair> = all.iter().filter(is_applied).collect();
    // The histories form a tree: a repair leads to a new one, and a rollback back to the one before that which it undoes. Of each, how many
    // repairs it has; and which one there was before each repair, and after the last.
    let (mut lengths, mut histories) = (vec![0_u64], vec![0_usize]);
    for repair in &applied {
        let before = histories[histories.len() - 1];
        let undone = repair.undo.and_then(|undone| applied.iter().position(|other| other.repair == undone));
        histories.push(undone.map_or(lengths.len(), |undone| histories[undone]));
        if undone.is_none() {
            lengths.push(lengths[before] + 1);
        }
    }
    let after = |at: usize| histories[at + 1];
    let Some(at) = applied.iter().position(|repair| repair.repair == number) else { return Ok(()) };
    let (now, left) = (histories[histories.len() - 1], after(at));
    if now == left {
        return Ok(());
    }
    // The one to roll back is the last that led here, from the history that is nearer.
    let is_longer = lengths[now] > lengths[left];
    let leads_here = |at: &usize| after(*at) == now && (lengths[histories[*at]] < lengths[now]) == is_longer;
    let leading: Vec<&Repair> = (0..applied.len()).rev().filter(leads_here).map(|at| applied[at]).collect();
    let newer = leading.iter().find(|repair| repair.phase == Phase::Applied).or(leading.first());
    let newer = newer.unwrap_or(&applied[applied.len() - 1]);
    let later = newer.repair;
    Err(Code::RepairPhase.error(match (newer.phase, &newer.part_of) {
        (Phase::Applied, None) => format!("repair {later} was applied after repair {number}; roll it back first"),
        (Phase::Applied, Some(PartOf { namespace, repair, .. })) => format!(
            "repair {later} was applied after repair {number}, as a part of repair {repair} of namespace {namespace}; roll that one back first"
        ),
        _ => format!(
            "repair {later} was applied after repair {number} and is permanent, because its old records were released; so repair {number} is \
             permanent, too"
        ),
    }))
}

fn undo_as(namespace: &Namespace, number: u64, reason: String, part_of: Option<PartOf>) -> Result<u64> {
    let of = repair(namespace, number)?;
    expect(&of, &[Phase::Applied], "rolled back")?;
    check_none_open(namespace)?;
    check_order(&repairs(namespace)?, number)?;
    let (journal, records) = (namespace.journal(), of.counts.replaced + of.counts.void + of.counts.appended);
    let code = match (&of.code, of.deployed) {
        // The runs since then are replayed with the code that it replaced.
        (Some(code), Some(deployed)) => Some(NewCode {
            attributes: code.before.clone(),
            before: code.attributes.clone(),
            revision: deployed,
            since: 0,
            only: Some(deployed),
            ..code.clone()
        }),
        _ => None,
    };
    // Runs may append more without the repair than with it, and nothing else could be done about a rollback that stops.
    let append_new = true;
    let pin = journal.pin(&format!("rollback of repair {number}"), WINDOW_BYTES, WINDOW)?.id;
    let opened = journal.commit(|tx| {
        check_none_open(namespace)?;
        if let Some(code) = &code {
            let now = tx.catalog().function_by_id(code.function).map(millrace_journal::Function::revision);
            if now != Some(code.revision) {
                return Err(deployed_since(&code.name, number));
            }
        }
        let (undo, log, auto, late_of, accept_unknown) = (Some(number), None, false, None, of.accept_unknown);
        let across = of.across.iter().map(|member| member.address.clone()).collect();
        let run_external = of.run_external.clone();
        #[rustfmt::skip]
        let open = Note::Open {
            reason, log, records, undo, code, append_new, auto, across, part_of, late_of, accept_unknown, run_external, pin,
        };
        let opened = note(tx, &open)?;
        note(tx, &Note::Run { repair: opened })?;
        Ok(opened)
    });
    let opened = opened.inspect_err(|_| drop(journal.unpin(pin)))?.value;
    journal.wake();
    Ok(opened)
}

/// Refuses a request about a part, whose outcome another namespace decides.
fn check_own(repair: &Repair) -> Result<()> {
    match &repair.part_of {
        Some(PartOf { namespace, repair: of, .. }) => {
            let number = repair.repair;
            Err(Code::RepairPart.error(format!("repair {number} is a part of repair {of} of namespace {namespace}")))
        }
        None => Ok(()),
    }
}

pub(crate) fn expect(repair: &Repair, phases: &[Phase], what: &str) -> Result<()> {
    if phases.contains(&repair.phase) {
        return Ok(());
    }
    let (number, phase) = (repair.repair, repair.phase.as_str());
    Err(Code::RepairPhase.error(format!("repair {number} is {phase}, and cannot be {what}")))
}

/// Writes a note about a repair that is in one of these phases.
pub(crate) fn step(namespace: &Namespace, number: u64, phases: &[Phase], what: &str, noted: &Note) -> Result<Repair> {
    let committed = namespace.journal().commit(|tx| {
        let found = repair(namespace, number)?;
        expect(&found, phases, what)?;
        note(tx, noted)?;
        Ok(found)
    })?;
    namespace.journal().wake();
    Ok(committed.value)
}

/// Requests the replay of a repair, again if it was stopped.
pub fn ask_run(namespace: &Namespace, number: u64) -> Result<()> {
    let phases = [Phase::Open, Phase::Stopped];
    let found = repair(namespace, number)?;
    check_own(&found)?;
    if found.phase == Phase::Running {
        return Ok(()); // Its host, or the process that did it, may have ended: whoever asks waits for the next one, or does it.
    }
    if found.phase == Phase::Open && found.undo.is_none() && book::corrections(namespace, number)? != found.records {
        let error = format!("not all corrections of repair {number} were recorded: abandon it");
        return Err(Code::RepairPhase.error(error));
    }
    step(namespace, number, &phases, "run", &Note::Run { repair: number }).map(drop)
}

/// Requests that a repair which is ready be applied.
pub fn ask_apply(namespace: &Namespace, number: u64) -> Result<()> {
    let found = repair(namespace, number)?;
    check_own(&found)?;
    if found.phase == Phase::Applying {
        return Ok(());
    }
    step(namespace, number, &[Phase::Ready], "applied", &Note::Apply { repair: number }).map(drop)
}

/// Abandons a repair that is not applied; nothing was changed.
pub fn abandon(namespace: &Namespace, number: u64) -> Result<()> {
    let found = repair(namespace, number)?;
    if matches!(found.phase, Phase::Preparing | Phase::Prepared | Phase::Committing) {
        return check_own(&found); // It has promised to switch.
    }
    give_up(namespace, number, &[])
}

/// Abandons a part whose initiator has abandoned the repair.
pub(crate) fn abandon_part(namespace: &Namespace, number: u64) -> Result<()> {
    give_up(namespace, number, &[Phase::Preparing, Phase::Prepared])
}

fn give_up(namespace: &Namespace, number: u64, also: &[Phase]) -> Result<()> {
    let phases = [&[Phase::Open, Phase::Running, Phase::Ready, Phase::Stopped, Phase::Applying], also].concat();
    let found = step(namespace, number, &phases, "abandoned", &Note::Abandoned { repair: number })?;
    namespace.journal().commit(|tx| seeds::forget(tx, number))?;
    namespace.journal().unpin(found.pin)
}

/// Releases the data for a rollback: the journal may drop the original entries.
pub fn close(namespace: &Namespace, number: u64) -> Result<()> {
    let phases = [Phase::Applied, Phase::RolledBack];
    let found = step(namespace, number, &phases, "released", &Note::Closed { repair: number })?;
    namespace.journal().unpin(found.pin)
}

//! A check rebuilds from the segments: the manifest, if it is lost or damaged, and logs whose definitions are lost.
//!
//! Segments contain, protected by checksums, the namespace and epoch in their headers, definitions in DEFINE and CATALOG entries, and, in
//! the causes of entries, which epochs belonged to which namespace. The newest complete CATALOG has all earlier definitions, the retention
//! and the durability. If there is none, the defaults are used, and definitions older than the oldest segment are lost: their logs get
//! generated names, and their functions are reported by number.

use crate::{
    catalog::Definition,
    entry::{ALIGN_BYTES, HEADER_BYTES, Header, Kind, ReplaySeed, Salt, payload},
    journal::MANIFEST,
    medium::Medium,
    options::CreateOptions,
    store::{
        control::Control,
        manifest::{Ancestor, LogRow, Manifest, SEGMENT_MAX_BYTES, SEGMENT_MIN_BYTES},
        part::{Head, Part, Parts},
        segments::{self, FOLDER, Segments, io_error},
    },
};
use millrace_wire::{Code, Error, EventId, Hlc, LogName, NamespaceId, Result};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::ErrorKind,
    sync::Arc,
};

/// The recreated parts, and the information that is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// The error of the manifest itself, if any.
    pub manifest: Option<Error>,
    /// Whether all that the manifest said is in the journal as well, in a CATALOG.
    pub cataloged: bool,
    /// Logs whose definitions are lost; these names are made up.
    pub unnamed: Vec<LogName>,
    /// Functions whose definitions are lost, by id: what their runs were to do is not known.
    pub functions: Vec<u32>,
    /// Segments that are left out: others are missing between them and the rest.
    pub left_out: Vec<u64>,
}

/// Replaces a manifest that cannot be read, or that lacks definitions whose DEFINE is gone. The medium keeps the new one in memory.
pub(crate) fn rebuild(medium: &Arc<dyn Medium>) -> Result<Option<Rebuilt>> {
    let read = match medium.read(MANIFEST) {
        Ok(bytes) => Manifest::decode(&bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Code::NamespaceIncomplete.error("the manifest is missing"))
        }
        Err(error) => Err(io_error(MANIFEST, &error)),
    };
    let unread = read.as_ref().err().cloned();
    if let Some(error) = unread.as_ref().filter(|error| matches!(error.code(), Code::FormatVersion | Code::Io)) {
        return Err(error.clone());
    }
    let (bytes, first) = (read.as_ref().map(|m| m.segment_bytes).ok(), read.as_ref().map(|m| m.first_segment).ok());
    let Some(files) = Files::find(&**medium, bytes, first)? else {
        return unread.map_or(Ok(None), |why| Err(nothing(why)));
    };
    let Some(salt) = read.as_ref().map(|manifest| manifest.salt).ok().or(files.salt(medium)?) else {
        return unread.map_or(Ok(None), |why| Err(nothing(why))); // Not one header passes: these are no segments.
    };
    let segments = Segments::new(medium.clone(), files.bytes, false, salt);
    let mut found = Found { from_the_start: files.numbers[0] == 0, ..Found::default() };
    for number in &files.numbers {
        found.segment(&**medium, &segments, *number)?;
    }
    let catalog = std::mem::take(&mut found.catalogs).newest();
    let mut rebuilt = Rebuilt { manifest: unread.clone(), left_out: files.left_out, ..Rebuilt::default() };
    let is_lost = unread.is_some();
    let mut manifest = match (read, unread) {
        (Ok(manifest), _) => manifest,
        // Not one header or entry passes: these are no segments.
        (Err(_), Some(why)) if found.epochs == 0 => return Err(nothing(why)),
        (Err(why), _) => {
            let current = Control::map(&**medium).ok().and_then(|page| page.namespace());
            if let Some((_, head)) = &catalog {
                found.owners(head);
            }
            found.manifest(files.bytes, files.numbers[0], current, salt).ok_or(why)?
        }
    };
    let mut is_changed = is_lost;
    if let Some((part, head)) = catalog
        && (is_lost || part.defined > manifest.defined && found.has_undefined(&manifest))
    {
        adopt(&mut manifest, part, head);
        is_changed = true;
        rebuilt.cataloged = is_lost;
    }
    found.add_undefined(&mut manifest, &mut rebuilt);
    let has_news = rebuilt != Rebuilt::default();
    if has_news || is_changed {
        medium.replace(MANIFEST, &manifest.encode()).map_err(|error| io_error(MANIFEST, &error))?;
    }
    Ok(has_news.then_some(rebuilt))
}

/// Takes what a CATALOG says into a manifest that knows less. Counters are lower bounds: the higher ones count.
fn adopt(manifest: &mut Manifest, part: Part, head: Head) {
    let before = (std::mem::take(&mut manifest.logs), std::mem::take(&mut manifest.functions));
    (manifest.logs, manifest.functions, manifest.pins) = (part.logs, part.functions, head.pins);
    for log in &mut manifest.logs {
        if let Some(known) = before.0.iter().find(|known| known.id == log.id) {
            (log.latest, log.trimmed) = (log.latest.max(known.latest), log.trimmed.max(known.trimmed));
        }
    }
    for function in &mut manifest.functions {
        if let Some(known) = before.1.iter().find(|known| known.id == function.id) {
            function.triggered = function.triggered.max(known.triggered);
            function.done = function.done.max(known.done);
        }
    }
    manifest.defined = part.defined;
    manifest.next_id = manifest.next_id.max(head.next_id);
    manifest.retain_bytes = head.retain_bytes;
    manifest.retain_age_ms = head.retain_age_ms;
    manifest.durability = head.durability;
    manifest.created_us = head.created_us;
    manifest.replay_seed = head.replay_seed;
}

/// There is nothing to make a manifest of.
fn nothing(why: Error) -> Error {
    if why.code() == Code::NamespaceIncomplete {
        Code::NotANamespace.error("neither manifest nor segments")
    } else {
        why
    }
}

/// The segments' files.
struct Files {
    bytes: u64,
    numbers: Vec<u64>,
    left_out: Vec<u64>,
}

impl Files {
    /// The salt, as the first whole header of a segment has it.
    fn salt(&self, medium: &Arc<dyn Medium>) -> Result<Option<Salt>> {
        let segments = Segments::new(medium.clone(), self.bytes, false, Salt([0; 2]));
        for number in &self.numbers {
            segments.map(*number, true)?;
            segments.probe(*number)?;
            if let Some(header) = segments.segment_header(*number)? {
                return Ok(Some(header.salt));
            }
        }
        Ok(None)
    }

    /// `bytes` and `first` are from the manifest, if there is one.
    fn find(medium: &dyn Medium, bytes: Option<u64>, first: Option<u64>) -> Result<Option<Files>> {
        let names = match medium.list(FOLDER) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            names => names.map_err(|error| io_error(FOLDER, &error))?,
        };
        let numbers: BTreeSet<u64> = names.iter().filter_map(|name| name.parse().ok()).collect();
        let Some(last) = numbers.last().copied() else { return Ok(None) };
        let lengths = numbers.iter().filter_map(|number| medium.identify(&segments::name(*number)).ok());
        let longest = lengths.map(|(_, bytes)| bytes).max().unwrap_or(0);
        let likely = longest.clamp(SEGMENT_MIN_BYTES, SEGMENT_MAX_BYTES).next_power_of_two();
        // Without a manifest, one that is missing hides whether what is before it was still kept.
        let unbroken = || (0..=last).rev().take_while(|number| numbers.contains(number)).last().unwrap_or(last);
        let from = first.unwrap_or_else(unbroken);
        let left_out = if first.is_none() { numbers.range(..from).copied().collect() } else { Vec::new() };
        let numbers: Vec<u64> = numbers.range(from.min(last)..).copied().collect();
        Ok(Some(Files { bytes: bytes.unwrap_or(likely), numbers, left_out }))
    }
}

/// The information from the segments.
#[derive(Default)]
struct Found {
    /// Headers and entries that say in which epoch they were written.
    epochs: u64,
    newest_epoch: u32,
    /// Which epochs are proven to be whose.
    owners: BTreeMap<u32, NamespaceId>,
    created: Option<Hlc>,
    replay_seed: Option<ReplaySeed>,
    defined: BTreeSet<u32>,
    /// Logs by id, and functions.
    logs: BTreeMap<u32, Uses>,
    functions: BTreeMap<u32, Uses>,
    catalogs: Parts,
    /// Whether what was written first is there: then nothing was ever dropped.
    from_the_start: bool,
}

/// How a log's or a function's entries number.
struct Uses {
    oldest: u64,
    newest: u64,
    /// The position of the last one that is not a copy of an older one.
    own: u64,
}

impl Uses {
    fn add(uses: &mut BTreeMap<u32, Uses>, header: &Header, position: u64) {
        let seqno = header.seqno;
        let all = uses.entry(header.subject).or_insert(Uses { oldest: seqno, newest: seqno, own: 0 });
        (all.oldest, all.newest) = (seqno.min(all.oldest), seqno.max(all.newest));
        if !header.is_carried() {
            all.own = position;
        }
    }
}

impl Found {
    fn segment(&mut self, medium: &dyn Medium, segments: &Segments, number: u64) -> Result<()> {
        let (start, region) = (segments.start(number), segments.map(number, true)?);
        segments.probe(number)?;
        let mut at = 0;
        while at < segments.bytes() {
            // Ranges without storage are skipped: on a full disk, reading them through the mapping could fault.
            let (data, hole) = medium.next_data(&region, at);
            if data == 0
                && let Some(header) = segments.segment_header(number)?
            {
                self.epoch(header.epoch);
                self.owners.extend(NamespaceId::new(header.namespace).map(|owner| (header.epoch, owner)));
            }
            let limit = start + (hole + 1).saturating_sub(HEADER_BYTES);
            let mut position =
                segments.resync((start + data).max(segments.first_entry(number)) - ALIGN_BYTES, limit)?;
            while position < limit
                && let Some(header) = segments.valid_entry(position)?
            {
                self.entry(segments, position, &header)?;
                position = segments.resync(position + header.span() - ALIGN_BYTES, limit)?;
            }
            at = hole.max(at + 1);
        }
        Ok(())
    }

    fn epoch(&mut self, epoch: u32) {
        self.epochs += 1;
        self.newest_epoch = self.newest_epoch.max(epoch);
    }

    fn entry(&mut self, segments: &Segments, position: u64, header: &Header) -> Result<()> {
        self.epoch(header.epoch);
        self.created.get_or_insert(Hlc::from_bits(header.hlc));
        match header.folded() {
            Some(Kind::Append) => Uses::add(&mut self.logs, header, position),
            Some(Kind::Open) => {
                let seed = payload::replay_seed(segments.payload(position, header)?);
                self.replay_seed = seed.or(self.replay_seed);
            }
            // One that cannot be read defines nothing.
            Some(Kind::Define) if Definition::decode(segments.payload(position, header)?).is_ok() => {
                self.defined.insert(header.subject);
            }
            Some(Kind::Catalog) => {
                self.catalogs.take(header, position, segments.payload(position, header)?)?;
            }
            Some(kind @ (Kind::Trigger | Kind::Fired | Kind::Done | Kind::Call)) => {
                // Their cause is an event of this namespace.
                header.full_cause().into_iter().for_each(|cause| self.own(cause));
                if matches!(kind, Kind::Trigger | Kind::Done) {
                    Uses::add(&mut self.functions, header, position);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn own(&mut self, event: EventId) {
        if let Some(owner) = event.namespace() {
            self.owners.insert(event.epoch(), owner);
        }
    }

    /// Takes what a CATALOG says of who the namespace was and when.
    fn owners(&mut self, head: &Head) {
        let reported = head.lineage.iter().map(|ancestor| (ancestor.epoch, ancestor.namespace));
        for (epoch, owner) in reported.chain([(head.epoch, head.namespace)]) {
            self.owners.entry(epoch).or_insert(owner);
        }
        self.newest_epoch = self.newest_epoch.max(head.epoch);
    }

    /// A manifest without logs and functions. `current` is whose the namespace was, as the control page has it.
    fn manifest(&self, bytes: u64, first_segment: u64, current: Option<NamespaceId>, salt: Salt) -> Option<Manifest> {
        let mut owners = self.owners.clone();
        // The control page is no proof, but the best available hint.
        if let Some(current) = current {
            owners.entry(self.newest_epoch).or_insert(current);
        }
        let mut lineage: Vec<Ancestor> = Vec::new();
        let mut namespace: Option<NamespaceId> = None;
        for (epoch, owner) in owners.range(..=self.newest_epoch) {
            if let Some(before) = namespace.filter(|before| before != owner) {
                lineage.push(Ancestor { namespace: before, epoch: epoch.saturating_sub(1) });
            }
            namespace = Some(*owner);
        }
        let defaults = CreateOptions::default();
        Some(Manifest {
            namespace: namespace?,
            salt,
            // Without an OPEN that has it, atomic runs of before cannot be run again as they were.
            replay_seed: self.replay_seed.or(ReplaySeed::random().ok())?,
            epoch: self.newest_epoch,
            segment_bytes: bytes,
            retain_bytes: defaults.retain_bytes,
            retain_age_ms: None,
            durability: defaults.durability,
            created_us: self.created.unwrap_or_default().wall_us(),
            first_segment,
            defined: 0,
            next_id: self.defined.last().map_or(1, |id| id.saturating_add(1)),
            logs: Vec::new(),
            functions: Vec::new(),
            pins: Vec::new(),
            lineage,
            requires: Vec::new(),
        })
    }

    /// Ids of logs and functions that have entries but no definition. Ids before the manifest's last definition that are not in it belong
    /// to removed ones.
    fn undefined(&self, manifest: &Manifest) -> (Vec<u32>, Vec<u32>) {
        let known: BTreeSet<u32> =
            manifest.logs.iter().map(|log| log.id).chain(manifest.functions.iter().map(|f| f.id)).collect();
        let defined = manifest.defined;
        let is_lost = |(id, uses): &(&u32, &Uses)| {
            !self.defined.contains(id) && !known.contains(id) && (defined == 0 || uses.own > defined)
        };
        let of = |uses: &BTreeMap<u32, Uses>| uses.iter().filter(is_lost).map(|(id, _)| *id).collect();
        (of(&self.logs), of(&self.functions))
    }

    fn has_undefined(&self, manifest: &Manifest) -> bool {
        let (logs, functions) = self.undefined(manifest);
        !logs.is_empty() || !functions.is_empty()
    }

    /// Adds logs and functions that have entries but no definition.
    fn add_undefined(&self, manifest: &mut Manifest, rebuilt: &mut Rebuilt) {
        let (logs, functions) = self.undefined(manifest);
        for id in &logs {
            let uses = &self.logs[id];
            let name: LogName = format!("salvaged/log-{id}").parse().expect("a good name");
            // If retention never dropped anything, the records before the oldest remaining one are lost, which is reported.
            let oldest = if self.from_the_start { 1 } else { uses.oldest };
            let history = (uses.newest - oldest).saturating_add(1).min(crate::HISTORY_MAX);
            rebuilt.unnamed.push(name.clone());
            manifest.logs.push(LogRow { id: *id, name, history, latest: 0, trimmed: 0, table: None });
            manifest.next_id = manifest.next_id.max(id.saturating_add(1));
        }
        for id in &functions {
            rebuilt.functions.push(*id);
            manifest.next_id = manifest.next_id.max(id.saturating_add(1));
        }
    }
}

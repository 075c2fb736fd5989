//! The current catalog: the definitions of the manifest, and the DEFINE entries since. Each of these names the previous one.

use crate::{
    catalog::{Catalog, Definition, Indexes},
    entry::Kind,
    journal::{Inner, MANIFEST},
    store::{manifest::Manifest, segments::io_error},
};
use millrace_wire::Result;
use std::sync::{Arc, atomic::Ordering};

/// Definitions, the newest first.
enum Found {
    /// All that were looked for.
    All(Vec<(u64, Definition)>),
    /// The definitions after a position that no longer has one.
    Since(Vec<(u64, Definition)>, u64),
}

impl Inner {
    /// The catalog of the manifest and what was defined since, on existing indexes.
    pub(crate) fn load_catalog(&self, manifest: &Manifest) -> Result<()> {
        let catalog = Catalog::from_manifest(manifest, &self.indexes(false))?;
        self.set_catalog(Arc::new(catalog), manifest.defined);
        self.refresh_catalog()
    }

    /// How a catalog of this journal comes by its indexes.
    pub(crate) fn indexes(&self, fresh: bool) -> Indexes<'_> {
        Indexes { arena: &self.arena, control: &self.control, fresh, known: None }
    }

    /// The catalog as of now.
    pub(crate) fn fresh_catalog(&self) -> Result<Arc<Catalog>> {
        if self.control.writer.defined.load(Ordering::Acquire) != self.catalog_version.load(Ordering::Acquire) {
            self.refresh_catalog()?;
        }
        Ok(self.cached_catalog())
    }

    /// Folds definitions that are newer than the cached catalog.
    pub(crate) fn refresh_catalog(&self) -> Result<()> {
        let mut cached = self.catalog.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        loop {
            let newest = self.control.writer.defined.load(Ordering::Acquire);
            let folded = self.fold_definitions(&cached, newest);
            // Retention may pass definitions while they are read.
            if folded.is_err() && self.control.writer.defined.load(Ordering::Acquire) != newest {
                continue;
            }
            *cached = Arc::new(folded?);
            self.catalog_version.store(newest, Ordering::Release);
            return Ok(());
        }
    }

    fn fold_definitions(&self, cached: &Catalog, newest: u64) -> Result<Catalog> {
        let mut catalog = cached.clone();
        let indexes = Indexes { known: Some(cached), ..self.indexes(false) };
        let mut found = match self.definitions_since(cached.version())? {
            Found::All(found) => found,
            Found::Since(found, passed) => {
                // Retention passed the ones before: then the manifest includes them.
                let bytes = self.medium.read(MANIFEST).map_err(|error| io_error(MANIFEST, &error))?;
                let manifest = Manifest::decode(&bytes)?;
                if manifest.defined < passed {
                    return Err(crate::read::get::damaged(passed, "a definition"));
                }
                catalog = Catalog::from_manifest(&manifest, &indexes)?;
                found.into_iter().filter(|(at, _)| *at > manifest.defined).collect()
            }
        };
        found.reverse();
        for (at, definition) in found {
            catalog.apply(&definition, at, &indexes)?;
        }
        catalog.set_version(newest);
        Ok(catalog)
    }

    /// Calls `each` with the attributes of every definition of a function in the part of the journal that is kept, and of those that were
    /// replaced in it, until it returns an error.
    ///
    /// # Errors
    ///
    /// Those of `each`, and `EntryDamaged` if the chain of definitions ends before retention has passed it: then nobody knows the older ones.
    pub(crate) fn functions_kept(&self, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        let mut position = self.control.writer.defined.load(Ordering::Acquire);
        // Each is before the one that names it.
        while position > 0 && position >= self.control.upkeep.first.load(Ordering::Acquire) {
            let Some(header) = self.valid_entry_at(position)?.filter(|header| header.folded() == Some(Kind::Define))
            else {
                let is_passed = position < self.control.upkeep.first.load(Ordering::Acquire);
                return if is_passed { Ok(()) } else { Err(crate::read::get::damaged(position, "a definition")) };
            };
            let (of, before) = match Definition::decode(self.segments.payload(position, &header)?) {
                Ok(Definition::Function { attributes, before, .. }) => (Some(attributes), before),
                Ok(Definition::RemoveFunction { before, .. }) => (None, before),
                _ => (None, None),
            };
            of.into_iter()
                .chain(before.map(|before| before.attributes))
                .try_for_each(|attributes| each(&attributes))?;
            if header.seqno >= position {
                return Err(crate::read::get::damaged(position, "a definition"));
            }
            position = header.seqno;
        }
        Ok(())
    }

    /// Definitions after `version`, the newest first: each DEFINE has the position of the previous one.
    fn definitions_since(&self, version: u64) -> Result<Found> {
        let mut found = Vec::new();
        let mut position = self.control.writer.defined.load(Ordering::Acquire);
        while position > version {
            let Some(header) = self.valid_entry_at(position)?.filter(|header| header.folded() == Some(Kind::Define))
            else {
                return Ok(Found::Since(found, position));
            };
            let definition = Definition::decode(self.segments.payload(position, &header)?)?;
            found.push((position, definition));
            position = header.seqno;
        }
        Ok(Found::All(found))
    }
}

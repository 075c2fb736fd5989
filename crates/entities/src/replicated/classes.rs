//! The classes of replicated objects, so that any host that runs a method has its code.

use crate::{
    space::durable::{Reader, damaged, list, uint},
    value,
};
use millrace_wire::{Code, Result};
use std::collections::{BTreeMap, BTreeSet};

/// The most bytes of all of them.
const CLASSES_MAX_BYTES: usize = 16 << 20;
/// How many classes are kept that no object uses.
const UNUSED_MAX: usize = 64;

/// The pool whose workers decode a body, and the number of the body there.
pub(super) type Name = (Box<str>, i64);

#[derive(Debug)]
struct Class {
    body: Box<[u8]>,
    /// The number of the command that added it.
    came: u64,
}

/// Classes by pool and number. The number is computed from the body, so it never means another body.
#[derive(Debug, Default)]
pub(super) struct Classes {
    of: BTreeMap<Name, Class>,
}

impl Classes {
    pub fn has(&self, name: &Name) -> bool {
        self.of.contains_key(name)
    }

    pub fn body(&self, name: &Name) -> Option<&[u8]> {
        self.of.get(name).map(|class| &*class.body)
    }

    fn bytes(&self) -> usize {
        self.of.values().map(|class| class.body.len()).sum()
    }

    /// Keeps a class; to make room, the oldest classes that are not in use are dropped.
    pub fn keep(&mut self, name: Name, body: &[u8], came: u64, used: impl FnOnce() -> BTreeSet<Name>) -> Result<()> {
        if let Some(class) = self.of.get_mut(&name) {
            class.came = came;
            return Ok(());
        }
        if self.of.len() >= UNUSED_MAX || self.bytes() + body.len() > CLASSES_MAX_BYTES {
            let used = used();
            let unused = self.of.iter().filter(|(name, _)| !used.contains(name));
            let mut unused: Vec<(u64, Name)> = unused.map(|(name, class)| (class.came, name.clone())).collect();
            unused.sort();
            let mut unused = unused.into_iter().peekable();
            while unused.len() >= UNUSED_MAX || unused.peek().is_some() && self.bytes() + body.len() > CLASSES_MAX_BYTES
            {
                let Some((_, name)) = unused.next() else { break };
                self.of.remove(&name);
            }
        }
        let bytes = self.bytes() + body.len();
        if bytes > CLASSES_MAX_BYTES {
            let reported =
                format!("classes of replicated objects would take {bytes} bytes; the limit is {CLASSES_MAX_BYTES}");
            return Err(Code::ObjectTooLarge.error(reported));
        }
        self.of.insert(name, Class { body: body.into(), came });
        Ok(())
    }

    pub fn encode(&self) -> Vec<u8> {
        let one = |((pool, number), class): (&Name, &Class)| {
            list(&[value::text(pool), value::int(*number), uint(class.came), value::bytes(&class.body)])
        };
        list(&self.of.iter().map(one).collect::<Vec<_>>())
    }

    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let one = |class: &[u8]| {
            let mut reader = Reader(value::elements(class)?.into_iter());
            let name = (reader.text()?.into(), reader.read(value::as_int)?);
            let came = reader.uint()?;
            let body = value::as_bytes(reader.next()?).ok_or_else(damaged)?.into();
            Ok((name, Class { body, came }))
        };
        Ok(Self { of: value::elements(bytes)?.into_iter().map(one).collect::<Result<_>>()? })
    }
}

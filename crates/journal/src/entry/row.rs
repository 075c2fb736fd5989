//! What a record of a table says besides its value: its key, and what happened to it. It is in the extension of its APPEND.

use super::{
    ALIGN_BYTES, Position,
    map::{Map, push, push_varint, varint},
    payload::{key, with_length},
};

/// What a record of a table does to its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operation {
    /// The key has the record's bytes as its value.
    #[default]
    Put,
    /// The key has no value.
    Delete,
    /// A number was added; the record's bytes are the sum.
    Increment,
}

impl Operation {
    const ALL: [Self; 3] = [Self::Put, Self::Delete, Self::Increment];

    /// Its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Delete => "delete",
            Self::Increment => "increment",
        }
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.name() == name)
    }
}

const DELETE: u64 = 1;
const INCREMENT: u64 = 2;

/// That a repair wrote a record, because a key has another value in the repaired history than it had before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restates {
    /// The repair.
    pub repair: u64,
    /// The record that has the value in the repaired history; 0 if the key has none there.
    pub seqno: u64,
}

/// What a record of a table says besides its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row<'b> {
    /// The key.
    pub key: &'b [u8],
    /// What happened to it.
    pub operation: Operation,
    /// When the value expires, in microseconds since 1970; 0 if never.
    pub expires_us: u64,
    /// Where the version before it was written; 0 if it is the first one that is known. A reader verifies that the entry there is one.
    pub previous: Position,
    /// What was added, of an INCREMENT.
    pub amount: i64,
    /// Whether it is a copy of a record that was not the value of its key any more when it was copied. It says nothing of what the key has.
    pub superseded: bool,
    /// Whether a repair says by it what the key has.
    pub restates: Option<Restates>,
}

impl<'b> Row<'b> {
    /// Whether the key has a value from here on.
    pub fn is_value(&self) -> bool {
        self.operation != Operation::Delete
    }

    /// The extension of an APPEND with this.
    pub(crate) fn extension(&self) -> Vec<u8> {
        with_length(&self.fields())
    }

    /// The fields of the extension.
    pub(super) fn fields(&self) -> Vec<u8> {
        let mut map = Vec::with_capacity(self.key.len() + 40);
        push(&mut map, key::EXTENSION_KEY, self.key);
        let operation = match self.operation {
            Operation::Put => 0,
            Operation::Delete => DELETE,
            Operation::Increment => INCREMENT,
        };
        let zigzag = (self.amount << 1 ^ self.amount >> 63) as u64;
        let numbers = [
            (key::EXTENSION_OPERATION, operation),
            (key::EXTENSION_EXPIRY, self.expires_us),
            (key::EXTENSION_PREVIOUS, self.previous.get() / ALIGN_BYTES),
            (key::EXTENSION_AMOUNT, zigzag),
        ];
        for (key, number) in numbers.into_iter().filter(|(_, number)| *number != 0) {
            let bytes = 8 - number.leading_zeros() as usize / 8;
            push(&mut map, key, &number.to_le_bytes()[..bytes]);
        }
        if let Some(Restates { repair, seqno }) = self.restates {
            let mut value = Vec::with_capacity(20);
            push_varint(&mut value, repair);
            push_varint(&mut value, seqno);
            push(&mut map, key::EXTENSION_RESTATES, &value);
        }
        map
    }

    /// What an extension, without its length, says of a key; `None` if it names none.
    pub(crate) fn of(extension: &'b [u8]) -> Option<Self> {
        let map = Map::parse(extension)?;
        let int = |key| map.int(key).unwrap_or(0);
        let zigzag = int(key::EXTENSION_AMOUNT);
        Some(Self {
            key: map.get(key::EXTENSION_KEY)?,
            operation: match int(key::EXTENSION_OPERATION) {
                0 => Operation::Put,
                DELETE => Operation::Delete,
                INCREMENT => Operation::Increment,
                _ => return None,
            },
            expires_us: int(key::EXTENSION_EXPIRY),
            previous: Position(int(key::EXTENSION_PREVIOUS).checked_mul(ALIGN_BYTES)?),
            amount: (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64),
            superseded: map.get(key::EXTENSION_SUPERSEDED).is_some(),
            restates: map.get(key::EXTENSION_RESTATES).and_then(|value| {
                let (repair, rest) = varint(value, 10)?;
                let (seqno, _) = varint(rest, 10)?;
                Some(Restates { repair, seqno })
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_row_comes_back(
            key in proptest::collection::vec(any::<u8>(), 1..1025),
            numbers: (u64, i64),
            unit in 0..u64::MAX / 16,
            of in 0..3usize,
            restated: Option<(u64, u64)>,
        ) {
            let operation = [Operation::Put, Operation::Delete, Operation::Increment][of];
            let restates = restated.map(|(repair, seqno)| Restates { repair, seqno });
            let row = Row { key: &key, operation, expires_us: numbers.0, previous: Position(unit * 16), amount: numbers.1, superseded: false, restates };
            let bytes = row.extension();
            prop_assert_eq!(Row::of(&bytes[2..]), Some(row));
        }

        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Row::of(&bytes);
        }
    }
}

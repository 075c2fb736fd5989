//! Ids and times as values of a message: an id is its 16 bytes, and text where people read it.

use crate::{EventId, Hlc};
use serde::{Deserialize, Serialize};

impl Serialize for EventId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            serializer.serialize_bytes(&self.get().to_le_bytes())
        }
    }
}

impl<'de> Deserialize<'de> for EventId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom);
        }
        let bytes: [u8; 16] = serde_bytes::deserialize(deserializer)?;
        Ok(EventId::from_bits(u128::from_le_bytes(bytes)))
    }
}

impl Serialize for Hlc {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.get())
    }
}

impl<'de> Deserialize<'de> for Hlc {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(Hlc::from_bits)
    }
}

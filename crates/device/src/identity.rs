//! What makes a device one of its own: who it is, its key, and the host that it sends to. `spec/formats/device.md` has the bytes.

use crate::bytes::{Reader, crc32c};
use millrace_wire::{Code, Error, NamespaceId, Result};

/// The longest identity.
pub const IDENTITY_MAX_BYTES: usize = 512;
/// Bytes of the key with which capabilities for a device are made.
pub const KEY_BYTES: usize = 32;

const MAGIC: &[u8; 4] = b"MRDI";
const FORMAT: u8 = 1;
const HEAD: usize = 12;
/// Bytes of a name, as in the firmware.
const NAME_MAX: usize = 64;
/// Bytes of the host's address.
const HOST_MAX: usize = 127;

const NAMESPACE: u8 = 1;
const NAME: u8 = 2;
const KEY: u8 = 3;
const SEED: u8 = 4;
const TOKEN: u8 = 5;
const HOST: u8 = 6;

/// A key of the device's own: a capability made with it permits commands.
#[derive(Clone, PartialEq, Eq)]
pub struct DeviceKey {
    /// The authority that issues with this key.
    pub authority: [u8; 8],
    /// The generation of the key.
    pub generation: u16,
    /// The key.
    pub key: [u8; KEY_BYTES],
}

/// The identity of a device.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// The identity of its namespace.
    pub namespace: NamespaceId,
    /// Its name at the host.
    pub name: String,
    /// Its own key, if it verifies who sends commands.
    pub key: Option<DeviceKey>,
    /// Random bytes, from which a board without a source of randomness makes further ones.
    pub seed: [u8; 32],
    /// The capability that it shows to the host, in binary form; without one, it is not encrypted.
    pub token: Option<Vec<u8>>,
    /// The address of the host, HOST:PORT; none on a serial line.
    pub host: Option<String>,
}

fn bad(what: impl std::fmt::Display) -> Error {
    Code::DeviceIdentityInvalid.error(what.to_string())
}

/// Of what was asked for, and not of an identity that there is.
fn unfit(what: String) -> Error {
    Code::ValueInvalid.error(what)
}

impl Identity {
    /// Its bytes.
    ///
    /// # Errors
    ///
    /// It would be longer than [`IDENTITY_MAX_BYTES`], or a part is too long (MR1006).
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut items = Vec::new();
        put(&mut items, NAMESPACE, &self.namespace.get().to_le_bytes()[..6]);
        let host = self.host.as_deref().unwrap_or_default();
        for (what, text, most) in [("the name", &*self.name, NAME_MAX), ("the address of the host", host, HOST_MAX)] {
            if text.len() > most || text.contains('\0') {
                return Err(unfit(format!("{what} has {} bytes; the limit is {most}", text.len())));
            }
        }
        put(&mut items, NAME, self.name.as_bytes());
        if let Some(DeviceKey { authority, generation, key }) = &self.key {
            put(&mut items, KEY, &[&authority[..], &generation.to_le_bytes(), key].concat());
        }
        put(&mut items, SEED, &self.seed);
        if let Some(token) = &self.token {
            put(&mut items, TOKEN, token);
        }
        if !host.is_empty() {
            put(&mut items, HOST, host.as_bytes());
        }
        if HEAD + items.len() > IDENTITY_MAX_BYTES {
            let bytes = HEAD + items.len();
            return Err(unfit(format!("the identity would have {bytes} bytes; the limit is {IDENTITY_MAX_BYTES}")));
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend([FORMAT, 0]);
        bytes.extend((items.len() as u16).to_le_bytes()); // at most 512
        let crc = crc32c(crc32c(0, &bytes), &items);
        bytes.extend(crc.to_le_bytes());
        bytes.extend(items);
        Ok(bytes)
    }

    /// The identity at the start of these bytes.
    ///
    /// # Errors
    ///
    /// There is none (MR6340), or it is of a later format (MR2002).
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (head, rest) = bytes.split_at_checked(HEAD).ok_or_else(|| bad("it is too short"))?;
        if !head.starts_with(MAGIC) {
            return Err(bad("there is no identity"));
        }
        if head[4] != FORMAT {
            return Err(Code::FormatVersion.error(format!("format {} of a device's identity", head[4])));
        }
        let length = usize::from(u16::from_le_bytes([head[6], head[7]]));
        let items = rest.get(..length).filter(|_| HEAD + length <= IDENTITY_MAX_BYTES);
        let items = items.ok_or_else(|| bad(format!("it is said to have {length} bytes")))?;
        if crc32c(crc32c(0, &head[..8]), items).to_le_bytes() != head[8..] {
            return Err(bad("its checksum is wrong"));
        }
        Self::read(items)
    }

    fn read(items: &[u8]) -> Result<Self> {
        let mut from = Reader(items);
        let (mut namespace, mut name, mut key, mut seed, mut token, mut host) = (None, None, None, [0; 32], None, None);
        while !from.0.is_empty() {
            let tag = from.byte()?;
            let size = from.number(2)? as usize; // two bytes
            let value = from.take(size)?;
            let odd = || bad(format!("item {tag} of {size} bytes"));
            let text = || String::from_utf8(value.to_vec()).map_err(|_| odd());
            match tag {
                NAMESPACE if size == 6 => namespace = NamespaceId::new(Reader(value).number(6)?),
                NAME if (1..=NAME_MAX).contains(&size) => name = Some(text()?),
                KEY if size == 10 + KEY_BYTES => {
                    key = Some(DeviceKey {
                        authority: value[..8].try_into().expect("8 bytes"),
                        generation: u16::from_le_bytes([value[8], value[9]]),
                        key: value[10..].try_into().expect("the rest"),
                    });
                }
                SEED if size == seed.len() => seed.copy_from_slice(value),
                TOKEN => token = Some(value.to_vec()),
                HOST if (1..=HOST_MAX).contains(&size) => host = Some(text()?),
                NAMESPACE..=HOST => return Err(odd()),
                _ => {}
            }
        }
        let namespace = namespace.ok_or_else(|| bad("it lacks the namespace"))?;
        Ok(Self { namespace, name: name.ok_or_else(|| bad("it lacks the name"))?, key, seed, token, host })
    }

    /// An image of the flash of a new device: two sectors with the identity, and behind them so many that are erased, for the journal.
    ///
    /// # Errors
    ///
    /// As for [`Identity::encode`]; or the sizes are none of a flash.
    pub fn flash_image(&self, sector_bytes: usize, journal_sectors: usize) -> Result<Vec<u8>> {
        let is_size = sector_bytes.is_power_of_two() && (1024..=1 << 18).contains(&sector_bytes);
        if !is_size || journal_sectors > 65_535 || sector_bytes.saturating_mul(journal_sectors) > 1 << 31 {
            return Err(unfit(format!(
                "{journal_sectors} sectors of {sector_bytes} bytes: a sector has 1024 to 262144 bytes, a power of two, and the journal at \
                 most 65535 sectors and 2 GiB"
            )));
        }
        let identity = self.encode()?;
        let mut image = vec![0xff; (2 + journal_sectors) * sector_bytes];
        for copy in 0..2 {
            image[copy * sector_bytes..][..identity.len()].copy_from_slice(&identity);
        }
        Ok(image)
    }
}

fn put(to: &mut Vec<u8>, tag: u8, value: &[u8]) {
    to.push(tag);
    to.extend((value.len() as u16).to_le_bytes()); // what is too long is refused behind this
    to.extend(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kitchen() -> Identity {
        Identity {
            namespace: NamespaceId::new(0x4b17_c4e2_0001).unwrap(),
            name: "kitchen".into(),
            key: Some(DeviceKey { authority: *b"kitchen1", generation: 1, key: [7; KEY_BYTES] }),
            seed: [9; 32],
            token: Some(vec![1; 150]),
            host: Some("192.168.1.7:7070".into()),
        }
    }

    #[test]
    fn an_identity_comes_back_and_no_byte_of_it_can_change() {
        let bytes = kitchen().encode().unwrap();
        assert!(Identity::decode(&bytes).unwrap() == kitchen());
        let mut padded = bytes.clone();
        padded.resize(4096, 0xff);
        assert!(Identity::decode(&padded).unwrap() == kitchen());
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let code = Identity::decode(&changed).map(|_| ()).unwrap_err().code();
            let expected = if at == 4 { Code::FormatVersion } else { Code::DeviceIdentityInvalid };
            assert_eq!(code, expected, "byte {at}");
            assert!(Identity::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
        let plain = Identity { key: None, token: None, host: None, ..kitchen() };
        assert!(Identity::decode(&plain.encode().unwrap()).unwrap() == plain);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for wrong in [
            Identity { name: "n".repeat(65), ..kitchen() },
            Identity { host: Some("h".repeat(128)), ..kitchen() },
            Identity { token: Some(vec![1; 400]), ..kitchen() },
            Identity { name: "a\0b".into(), ..kitchen() },
        ] {
            assert_eq!(wrong.encode().unwrap_err().code(), Code::ValueInvalid);
        }
        for (sector_bytes, sectors) in [(1000, 4), (512, 4), (1 << 19, 4), (4096, 65_536), (1 << 18, 1 << 14)] {
            assert!(kitchen().flash_image(sector_bytes, sectors).is_err(), "{sectors} of {sector_bytes}");
        }
        let image = kitchen().flash_image(2048, 8).unwrap();
        assert_eq!(image.len(), 10 * 2048);
        assert!(Identity::decode(&image[2048..]).unwrap() == kitchen());
        assert!(image[4096..].iter().all(|byte| *byte == 0xff));
    }
}

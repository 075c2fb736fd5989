//! The journal that a device keeps in its flash, `spec/formats/device.md`, and its serial line.
//!
//! This crate reads an image of a flash ([`Image`]), decodes and encodes its bursts ([`Burst`], [`Entry`]), and expands them to the events
//! that they imply, with their ids and clocks ([`Image::events`]); or it follows the journal as a device sends it ([`Feed`]). [`serial`]
//! has the frames of the serial line, and the host's side of it; [`Identity`] is what tells a device from others, and [`provision`] how it goes
//! over that line. It is pure, and shares no code with `device/`: the tests compare the two.

mod burst;
mod bytes;
mod events;
mod feed;
mod identity;
mod image;
pub mod provision;
pub mod serial;

pub use burst::{Burst, Cause, Entry, Row};
pub use bytes::crc32c;
pub use events::{Event, Seen, What};
pub use feed::{Arrived, Feed};
pub use identity::{DeviceKey, IDENTITY_MAX_BYTES, Identity, KEY_BYTES};
pub use image::{Header, Image, Sector};

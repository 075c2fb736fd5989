//! Topics that a NATS cluster keeps: publish, get and follow through JetStream.

pub use async_nats::ServerAddr;

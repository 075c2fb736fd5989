//! What no bytes of an MQTT client may do. Used by the fuzzer and, on the committed corpus, by an ordinary test.

use millrace_mqtt::packet::{CONNECT_MAX_BYTES, Connect, PACKET_MAX_BYTES, Packet, Version, frame};

/// Bytes as they may arrive after the first, which says the version: packets or faults, and each packet the same whatever follows it.
pub fn mqtt(input: &[u8]) {
    let Some((choice, mut rest)) = input.split_first() else { return };
    let version = if choice & 1 == 0 { Version::V3 } else { Version::V5 };
    if let Ok(Some((first, body, length))) = frame(rest, CONNECT_MAX_BYTES) {
        assert!(length >= 2 && length <= rest.len() && body.len() < length);
        if let Ok(connect) = Connect::read(first, body) {
            assert!(connect.client.len() <= body.len());
        }
    }
    while let Ok(Some((first, body, length))) = frame(rest, PACKET_MAX_BYTES) {
        // No cut of a whole packet is taken for one.
        assert!(frame(&rest[..length - 1], PACKET_MAX_BYTES).is_ok_and(|cut| cut.is_none()));
        if let Ok(packet) = Packet::read(first, body, version) {
            assert_eq!(Packet::read(first, &rest[length - body.len()..length], version).ok(), Some(packet.clone()));
            if let Packet::Publish(publish) = packet {
                assert!(!publish.topic.contains(['+', '#', '\0']) && publish.topic.len() <= 1024);
            }
        }
        rest = &rest[length..];
    }
}

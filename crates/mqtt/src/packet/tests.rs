use super::*;
use millrace_wire::Headers;
use proptest::prelude::*;

/// A packet as a client of 5.0 sends it.
fn bytes(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn read(text: &str, version: Version) -> Result<String, u8> {
    let bytes = bytes(text);
    let (first, body, whole) = frame(&bytes, PACKET_MAX_BYTES).map_err(|fault| fault.reason)?.expect("it is whole");
    assert_eq!(whole, bytes.len());
    Packet::read(first, body, version).map(|packet| format!("{packet:?}")).map_err(|fault| fault.reason)
}

#[test]
fn a_connect_has_what_it_says() {
    let text = "10 26 0004 4d515454 04 c6 000a 0002 6331 0003 612f62 0002 6869 0001 75 0002 7077";
    let mut packet = bytes(text);
    packet[1] = (packet.len() - 2) as u8;
    packet[9] = 0xCE; // quality 1 of the will
    let (first, body, _) = frame(&packet, CONNECT_MAX_BYTES).unwrap().unwrap();
    let connect = Connect::read(first, body).unwrap();
    assert_eq!((connect.version, connect.client, connect.clean, connect.keep_alive_s), (Version::V3, "c1", true, 10));
    assert_eq!((connect.user, connect.password), (Some("u"), Some(&b"pw"[..])));
    let will = connect.will.unwrap();
    assert_eq!((will.topic, will.payload, will.qos, will.retain), ("a/b", &b"hi"[..], Qos::AtLeastOnce, false));
    for (at, byte, reason) in [
        (9, 0xCF, reason::MALFORMED),        // a reserved flag
        (9, 0xDE, reason::MALFORMED),        // quality 3
        (9, 0x4E, reason::MALFORMED),        // a password without a user
        (8, 3, reason::UNSUPPORTED_VERSION), // 3.1
        (8, 6, reason::UNSUPPORTED_VERSION),
        (7, b'X', reason::UNSUPPORTED_VERSION), // another name
        (19, b'+', reason::TOPIC_INVALID),
    ] {
        let mut other = packet.clone();
        other[at] = byte;
        let refused = Connect::read(first, &other[2..]).unwrap_err();
        assert_eq!(refused.reason, reason, "byte {at} = {byte}");
    }
    for end in 2..packet.len() {
        assert_eq!(Connect::read(first, &packet[2..end]).unwrap_err().reason, reason::MALFORMED);
    }
}

#[test]
fn packets_have_what_they_say() {
    use Version::{V3, V5};
    for (text, version, expected) in [
        (
            "30 05 0001 61 6869",
            V3,
            "topic: \"a\", alias: None, id: 0, dup: false, qos: AtMostOnce, retain: false, payload: [104, 105]",
        ),
        ("3b 05 0001 61 0007", V3, "id: 7, dup: true, qos: AtLeastOnce, retain: true, payload: []"),
        ("30 06 0000 03 230005", V5, "topic: \"\", alias: Some(5)"),
        ("40 02 0007", V3, "Acknowledged(7, 0)"),
        ("40 03 0007 97", V5, "Acknowledged(7, 151)"),
        ("62 02 0007", V5, "Release(7)"),
        ("82 06 0001 0001 61 01", V3, "Subscribe(1, [Subscription { filter: \"a\", qos: AtLeastOnce"),
        (
            "82 09 0001 020b07 0001 61 2d",
            V5,
            "no_local: true, retain_as_published: true, retain_handling: 2 }], Some(7))",
        ),
        ("a2 05 0001 0001 61", V3, "Unsubscribe(1, [\"a\"])"),
        ("c0 00", V3, "Ping"),
        ("e0 00", V5, "Disconnect(0, None)"),
        ("e0 07 04 05 1100000009", V5, "Disconnect(4, Some(9))"),
    ] {
        let packet = read(text, version).unwrap_or_else(|reason| panic!("{text}: {reason:#x}"));
        assert!(packet.contains(expected), "{text}: {packet}");
    }
}

#[test]
fn packets_that_the_specifications_forbid_are_refused() {
    use Version::{V3, V5};
    for (text, version, reason) in [
        ("36 05 0001 61 0007", V3, reason::MALFORMED),                // quality 3
        ("38 03 0001 61", V3, reason::MALFORMED),                     // DUP with quality 0
        ("32 05 0001 61 0000", V3, reason::PROTOCOL_ERROR),           // id 0
        ("30 03 0001 2b", V3, reason::TOPIC_INVALID),                 // a wildcard
        ("30 02 0000", V3, reason::TOPIC_INVALID),                    // no topic
        ("30 03 0000 00", V5, reason::TOPIC_INVALID),                 // no topic and no alias
        ("30 06 0000 03 230000", V5, reason::PROTOCOL_ERROR),         // alias 0
        ("30 09 0000 06 230005 230005", V5, reason::PROTOCOL_ERROR),  // two aliases
        ("30 05 0001 61 01 0b", V5, reason::MALFORMED),               // a property that is cut off
        ("30 06 0001 61 02 0b01", V5, reason::MALFORMED),             // a client's subscription number
        ("30 03 0001 00", V3, reason::MALFORMED),                     // a zero character
        ("30 03 0001 ff", V3, reason::MALFORMED),                     // no UTF-8
        ("30 04 0005 6161", V3, reason::MALFORMED),                   // longer than the packet
        ("60 02 0007", V3, reason::MALFORMED),                        // flags of PUBREL
        ("80 06 0001 0001 61 01", V3, reason::MALFORMED),             // flags of SUBSCRIBE
        ("82 02 0001", V3, reason::PROTOCOL_ERROR),                   // no filter
        ("82 06 0001 0001 61 03", V3, reason::MALFORMED),             // quality 3
        ("82 06 0001 0001 61 04", V3, reason::MALFORMED),             // an option of 5.0
        ("82 07 0001 00 0001 61 30", V5, reason::MALFORMED),          // retain handling 3
        ("82 09 0001 020b00 0001 61 00", V5, reason::PROTOCOL_ERROR), // number 0
        ("a2 02 0001", V3, reason::PROTOCOL_ERROR),
        ("c0 01 00", V3, reason::MALFORMED),
        ("e0 01 00", V3, reason::MALFORMED),
        ("10 00", V3, reason::PROTOCOL_ERROR),
        ("20 02 0000", V3, reason::PROTOCOL_ERROR),
        ("f0 00", V5, reason::PROTOCOL_ERROR),
        ("00 00", V5, reason::PROTOCOL_ERROR),
    ] {
        if let Ok(packet) = read(text, version).map_err(|found| assert_eq!(found, reason, "{text}")) {
            panic!("{text} is {packet}");
        }
    }
}

#[test]
fn a_connect_that_is_wrong_still_tells_its_version() {
    for (text, is) in [
        ("10 0d 0004 4d515454 05 03 0000 00", true),
        ("10 ffffff7f 0004 4d515454 05", true),
        ("10 0d 0004 4d515454 04 03 0000", false),
        ("10 0d 0004 4d515458 05 03 0000", false),
        ("10 0d 0004 4d515454", false),
        ("10 ffffffff 0004 4d515454 05", false),
        ("30 0d 0004 4d515454 05", false),
        ("10", false),
    ] {
        assert_eq!(speaks_5(&bytes(text)), is, "{text}");
    }
}

#[test]
fn what_is_announced_is_not_waited_for_beyond_the_limit() {
    assert!(frame(&[0x30], 100).unwrap().is_none());
    assert!(frame(&[0x30, 0x80], 100).unwrap().is_none());
    assert!(frame(&[0x30, 97, 0], 100).unwrap().is_none());
    for announced in [&[0x30, 99][..], &[0x30, 0xff, 0xff, 0xff, 0x7f]] {
        assert_eq!(frame(announced, 100).unwrap_err().reason, reason::TOO_LARGE);
    }
    for wrong in [&[0x30, 0xff, 0xff, 0xff, 0xff][..], &[0x30, 0x80, 0x00]] {
        assert_eq!(frame(wrong, usize::MAX).unwrap_err().reason, reason::MALFORMED);
    }
}

#[test]
fn a_message_that_the_client_does_not_read_is_not_written() {
    let headers = Headers::default();
    let message = Outgoing {
        headers: &headers,
        topic: "a/b",
        payload: &[7; 200],
        id: 9,
        qos: Qos::AtLeastOnce,
        dup: true,
        retain: false,
        subscriptions: &[300],
        lost: 0,
    };
    let mut out = Vec::new();
    assert!(publish(&mut out, Version::V5, &message, usize::MAX));
    let length = out.len();
    assert!(!publish(&mut out, Version::V5, &message, length - 1) && publish(&mut out, Version::V5, &message, length));
    let (first, body, whole) = frame(&out, 1000).unwrap().unwrap();
    assert_eq!((first, whole, body.len()), (0x3a, length, 2 + 3 + 2 + 4 + 200));
    assert_eq!(body[..11], [0, 3, b'a', b'/', b'b', 0, 9, 3, 11, 0xac, 2]);
}

proptest! {
    /// Whatever bytes come, they are a packet or a fault, and a packet does not depend on what follows it.
    #[test]
    fn any_bytes_are_read_or_refused(
        first in any::<u8>(),
        body in prop::collection::vec(prop_oneof![any::<u8>(), 0u8..5], 0..64),
        is_v5 in any::<bool>(),
    ) {
        let version = if is_v5 { Version::V5 } else { Version::V3 };
        let _ = Packet::read(first, &body, version);
        let _ = Connect::read(0x10, &body);
        let mut whole = vec![first, body.len() as u8];
        whole.extend_from_slice(&body);
        whole.push(0x30);
        let (_, found, length) = frame(&whole, 1000).unwrap().unwrap();
        prop_assert_eq!((found, length), (&body[..], body.len() + 2));
    }
}

#[test]
fn a_message_crosses_a_bridge_as_it_is() {
    use Version::{V3, V5};
    let mut headers = Headers::default();
    headers.push("unit", "C").unwrap();
    let message = Outgoing {
        topic: "a/b",
        payload: b"21",
        id: 9,
        qos: Qos::AtLeastOnce,
        dup: true,
        retain: true,
        subscriptions: &[],
        headers: &headers,
        lost: 0,
    };
    for (from, to) in [(V3, V3), (V3, V5), (V5, V3), (V5, V5)] {
        let (mut there, mut here) = (Vec::new(), Vec::new());
        assert!(publish(&mut there, from, &message, usize::MAX));
        let (first, body, _) = frame(&there, 1000).unwrap().unwrap();
        let FromBroker::Message(came) = FromBroker::read(first, body, from).unwrap() else { panic!("{body:?}") };
        assert_eq!((came.topic, came.id, came.qos()), ("a/b", 9, Qos::AtLeastOnce));
        assert!(came.write(&mut here, to, "site/a/b", u32::MAX) && !came.write(&mut Vec::new(), to, "a", 8));
        let mut expected = Vec::new();
        let none = Headers::default();
        let kept = if (from, to) == (V5, V5) { &headers } else { &none };
        publish(&mut expected, to, &Outgoing { topic: "site/a/b", headers: kept, ..message }, usize::MAX);
        assert_eq!(here, expected);
    }
}

#[test]
fn a_client_says_what_this_server_reads() {
    let greeting = Greeting {
        version: Version::V5,
        client: "bridge",
        user: None,
        password: Some(b"pw"),
        keep_alive_s: 30,
        expiry_s: 600,
        receive_max: 64,
    };
    for version in [Version::V3, Version::V5] {
        let mut out = Vec::new();
        connect(&mut out, &Greeting { version, ..greeting });
        let (first, body, _) = frame(&out, 1000).unwrap().unwrap();
        let read = Connect::read(first, body).unwrap();
        assert_eq!((read.version, read.client, read.clean, read.keep_alive_s), (version, "bridge", false, 30));
        assert_eq!((read.user, read.password), (Some(""), Some(&b"pw"[..])));
        out.clear();
        subscribe(&mut out, version, 7, &["a/+".to_owned()]);
        let (first, body, _) = frame(&out, 1000).unwrap().unwrap();
        let Packet::Subscribe(7, filters, None) = Packet::read(first, body, version).unwrap() else {
            panic!("{out:?}")
        };
        assert_eq!(
            (filters[0].filter, filters[0].qos, filters[0].no_local),
            ("a/+", Qos::AtLeastOnce, version == Version::V5)
        );
        out.clear();
        let welcome = Connected { present: true, receive_max: 10, packet_max_bytes: 99, ..Connected::default() };
        connected(&mut out, version, Ok(welcome));
        let (_, body, _) = frame(&out, 1000).unwrap().unwrap();
        let (receive_max, packet_max_bytes) = if version == Version::V5 { (10, 99) } else { (u16::MAX, u32::MAX) };
        assert_eq!(
            Welcome::read(body, version).unwrap(),
            Welcome { present: true, reason: 0, receive_max, packet_max_bytes }
        );
    }
}

proptest! {
    #[test]
    fn any_bytes_of_a_broker_are_answered(first: u8, body in proptest::collection::vec(any::<u8>(), 0..60)) {
        for version in [Version::V3, Version::V5] {
            let _ = (FromBroker::read(first, &body, version), Welcome::read(&body, version));
        }
    }
}

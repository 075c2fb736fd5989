//! Every message, in several shapes: all optional keys and none, every width of a number and of a length.

use super::Case;
use millrace_wire::{Durability, EventId, Hlc, NamespaceId, protocol::*};

const NOW: u64 = 1_700_000_000_000_000 << 12;

fn heading(request: u64, hlc: u64, cause: EventId) -> Heading {
    Heading { request, hlc: Hlc::from_bits(hlc), cause, slot: 0 }
}

fn id(sequence: u64) -> EventId {
    EventId::new(NamespaceId::new(0x0123_4567_89ab).expect("48 bits"), 3, sequence)
}

/// The largest id.
fn last_id() -> EventId {
    EventId::new(NamespaceId::new(NamespaceId::MAX).expect("48 bits"), EventId::EPOCH_MAX, EventId::SEQUENCE_MAX)
}

/// A case of a message that owns its data.
pub fn owned<M>(name: &'static str, heading: Heading, message: M) -> Case
where
    M: Message + for<'b> Decode<'b> + PartialEq + std::fmt::Debug + 'static,
{
    let mut bytes = Vec::new();
    encode(&mut bytes, heading, &message);
    Case {
        name,
        written: bytes.clone(),
        bytes,
        check: Box::new(move |bytes| {
            let (frame, used) = split(bytes, FRAME_MAX_BYTES).map_err(|e| e.to_string())?.ok_or("it is not whole")?;
            let found = frame.message::<M>().map_err(|e| e.to_string())?;
            let same = found == message && frame.heading == heading && used == bytes.len();
            same.then_some(()).ok_or(format!("{found:?} with {:?}", frame.heading))
        }),
    }
}

/// A case of a message that borrows from the frame.
#[macro_export]
macro_rules! lent {
    ($name:expr, $heading:expr, $type:ident $body:tt) => {{
        let (heading, message) = ($heading, $type $body);
        let mut bytes = Vec::new();
        encode(&mut bytes, heading, &message);
        lent!(@case $name, bytes, heading, $type, message)
    }};
    (@case $name:expr, $bytes:expr, $heading:expr, $type:ident, $message:expr) => {{
        let (heading, message) = ($heading, $message);
        let mut written = Vec::new();
        encode(&mut written, heading, &message);
        Case {
            name: $name,
            bytes: $bytes,
            written,
            check: Box::new(move |bytes| {
                let (frame, used) =
                    split(bytes, FRAME_MAX_BYTES).map_err(|e| e.to_string())?.ok_or("it is not whole")?;
                let found = frame.message::<$type<'_>>().map_err(|e| e.to_string())?;
                let same = found == message && frame.heading == heading && used == bytes.len();
                same.then_some(()).ok_or(format!("{found:?} with {:?}", frame.heading))
            }),
        }
    }};
}

pub fn all() -> Vec<Case> {
    [everybody(), appends(), reads(), tails(), logs(), links(), lengths()].into_iter().flatten().collect()
}

fn everybody() -> Vec<Case> {
    let none = EventId::NONE;
    let hello =
        |namespace: &'static str| Hello { oldest: 2, newest: 2, namespace, client: "rust/0.1.0", ..Hello::default() };
    vec![
        lent!("hello", heading(1, 0, none), Hello { ..hello("farm") }),
        lent!("hello.only-namespace", heading(1, NOW, none), Hello { ..hello("") }),
        lent!(
            "hello.entitled",
            heading(1, NOW, none),
            Hello {
                capabilities: vec![
                    Offer { capability: &[1, 2], proof: &[3; 32] },
                    Offer { capability: &[4; 300], proof: &[] }
                ],
                newest: 3,
                ..hello("a")
            }
        ),
        lent!("challenge", heading(1, NOW, none), Challenge { challenge: &[9; 16] }),
        lent!("present", heading(2, NOW, none), Present { slot: 15, capability: &[1, 2], proof: &[3; 32] }),
        owned("redeem", heading(2, NOW, none), Redeem {}),
        lent!("redeemed", heading(2, NOW, none), Redeemed { capability: &[1; 90] }),
        owned("ping.slot", Heading { slot: 15, ..heading(2, NOW, none) }, Ping {}),
        lent!(
            "welcome",
            heading(1, NOW, none),
            Welcome {
                version: 2,
                host: "millrace/0.1.0",
                name: "farm",
                namespace: 0x0123_4567_89ab,
                epoch: 3,
                frame_max_bytes: 16_842_752,
                record_max_bytes: 1 << 20,
                requests_max: 1024,
                durability: Durability::Disk,
            }
        ),
        lent!(
            "welcome.widest",
            heading(u64::MAX, u64::MAX, none),
            Welcome {
                version: u16::MAX,
                host: "",
                name: "x",
                namespace: NamespaceId::MAX,
                epoch: EventId::EPOCH_MAX,
                frame_max_bytes: u32::MAX,
                record_max_bytes: u32::MAX,
                requests_max: u32::MAX,
                durability: Durability::Memory,
            }
        ),
        lent!("failure", heading(2, NOW, none), Failure { code: "MR2101", detail: "no log 'a'", retry_after_ms: None }),
        lent!(
            "failure.retry",
            heading(3, NOW, none),
            Failure { code: "MR3002", detail: "café \"ü\"\n\\ 水", retry_after_ms: Some(250) }
        ),
        lent!(
            "failure.connection",
            heading(0, 0, none),
            Failure { code: "MR6003", detail: "", retry_after_ms: Some(u32::MAX) }
        ),
        owned("ping", heading(4, 0, none), Ping {}),
        owned("ping.caused", heading(127, 128, id(1)), Ping {}),
        owned("ping.connection", heading(0, 1, none), Ping {}),
        owned("pong", heading(128, 255, none), Pong {}),
        owned("pong.wide", heading(256, 65_535, last_id()), Pong {}),
    ]
}

fn appends() -> Vec<Case> {
    let none = EventId::NONE;
    let records = vec![NewRecord { log: "a", data: &[] }, NewRecord { log: "b/c", data: b"\x00\xff" }];
    vec![
        lent!("append", heading(1, NOW, none), Append { log: "raw", data: b"hello", ..Append::default() }),
        lent!("append.nothing", heading(65_535, 65_536, none), Append { log: "a", ..Append::default() }),
        lent!(
            "append.full",
            heading(65_536, NOW + 1, id(7)),
            Append {
                log: "raw/kitchen",
                data: &[0, 127, 128, 255],
                durability: Some(Durability::Disk),
                function: Some("smooth"),
                key: Some("018f-a"),
                fence: None,
            }
        ),
        lent!(
            "append.memory",
            heading(u64::from(u32::MAX), 0, last_id()),
            Append { log: "raw", data: b"x", durability: Some(Durability::Memory), ..Append::default() }
        ),
        lent!(
            "append.key",
            heading(1 << 32, u64::from(u32::MAX), none),
            Append { log: "raw", data: b"x", key: Some("ключ"), ..Append::default() }
        ),
        owned("appended", heading(1, NOW, none), Appended { seqno: 1, id: id(12) }),
        owned("appended.widest", heading(u64::MAX, u64::MAX, none), Appended { seqno: u64::MAX, id: last_id() }),
        lent!("append-many", heading(2, NOW, none), AppendMany { records: records.clone(), ..AppendMany::default() }),
        lent!(
            "append-many.full",
            heading(3, NOW, id(1)),
            AppendMany { records, durability: Some(Durability::Memory), key: Some("k"), fence: None }
        ),
        owned(
            "appended-many",
            heading(2, NOW, none),
            AppendedMany { records: vec![Appended { seqno: 127, id: id(13) }, Appended { seqno: 128, id: id(14) }] },
        ),
    ]
}

fn reads() -> Vec<Case> {
    let none = EventId::NONE;
    let first = Record { seqno: 255, id: id(20), hlc: Hlc::from_bits(NOW), cause: none, data: b"21.5", headers: &[] };
    let caused =
        Record { seqno: 256, id: id(21), hlc: Hlc::from_bits(NOW + 1), cause: id(20), data: &[], headers: &[] };
    vec![
        lent!("get", heading(5, NOW, none), Get { log: "raw", seqno: 65_535, ..Get::default() }),
        lent!("get.newest", heading(5, NOW, none), Get { log: "raw", ..Get::default() }),
        lent!(
            "get.full",
            heading(6, NOW, none),
            Get { log: "raw", seqno: 65_536, wait_ms: 30_000, durability: Some(Durability::Memory) }
        ),
        lent!("record", heading(5, NOW, none), Record { ..first.clone() }),
        lent!("record.caused", heading(6, NOW, id(3)), Record { ..caused.clone() }),
        lent!("range", heading(7, NOW, none), Range { log: "raw", from: 1, count: 100, durability: None }),
        lent!(
            "range.widest",
            heading(7, NOW, none),
            Range { log: "raw", from: u64::MAX, count: u32::MAX, durability: Some(Durability::Disk) }
        ),
        lent!("records", heading(7, NOW, none), Records { incarnation: 4, records: vec![first, caused], next: 257 }),
        lent!("records.none", heading(7, NOW, none), Records { incarnation: u32::MAX, records: vec![], next: 1 }),
        lent!("latest", heading(8, NOW, none), Latest { log: "raw", ..Latest::default() }),
        lent!(
            "latest.full",
            heading(8, NOW, none),
            Latest { log: "raw", above: 1 << 40, wait_ms: u32::MAX, durability: Some(Durability::Disk) }
        ),
        owned("seqno", heading(8, NOW, none), Seqno { seqno: u64::from(u32::MAX) }),
        owned("seqno.none", heading(8, NOW, none), Seqno { seqno: 0 }),
    ]
}

fn tails() -> Vec<Case> {
    let none = EventId::NONE;
    vec![
        lent!("tail", heading(9, NOW, none), Tail { log: "raw", from: 0, credit: 1024, ..Tail::default() }),
        lent!(
            "tail.resumed",
            heading(9, NOW, none),
            Tail { log: "raw", from: 1 << 32, incarnation: 4, credit: 1, durability: Some(Durability::Memory) }
        ),
        owned("credit", heading(9, NOW, none), Credit { records: 512 }),
        owned("cancel", heading(9, NOW, none), Cancel {}),
        owned("ended", heading(9, NOW, none), Ended {}),
    ]
}

fn logs() -> Vec<Case> {
    let none = EventId::NONE;
    vec![
        lent!("create-log", heading(10, NOW, none), CreateLog { log: "raw/kitchen", history: 1000 }),
        lent!("create-log.longest", heading(10, NOW, none), CreateLog { log: "a", history: u64::MAX }),
        owned("done", heading(10, NOW, none), Done {}),
        lent!("remove-log", heading(11, NOW, none), RemoveLog { log: "raw" }),
        lent!("set-log", heading(11, NOW, none), SetLog { log: "raw", history: 1 << 62 }),
        owned("cancel-run", heading(11, NOW, none), CancelRun { run: id(5) }),
        lent!("show", heading(12, NOW, none), Show { path: "runs?limit=10" }),
        lent!("repair", heading(12, NOW, none), Repair { json: "{\"do\":\"apply\",\"repair\":7}" }),
        lent!("document", heading(12, NOW, none), Document { json: "{\"logs\":[]}" }),
    ]
}

/// Changes of functions, relays and logs, and uploads of code.
fn manage() -> Vec<Case> {
    let none = EventId::NONE;
    vec![
        lent!("manage", heading(14, NOW, none), Manage { json: "{\"do\":\"trim-log\",\"log\":\"raw\"}" }),
        lent!(
            "invoke-function",
            heading(15, NOW, none),
            InvokeFunction { function: "smooth", data: b"21.5", ..InvokeFunction::default() }
        ),
        lent!(
            "invoke-function.full",
            heading(15, NOW, none),
            InvokeFunction {
                function: "smooth",
                data: b"",
                log: Some("raw/kitchen"),
                durability: Some(Durability::Disk),
                key: Some("k1"),
                wait_ms: 30_000,
            }
        ),
        lent!(
            "invoked-function",
            heading(15, NOW, none),
            InvokedFunction { log: "invoke/smooth", seqno: 7, id: id(31), ..InvokedFunction::default() }
        ),
        lent!(
            "invoked-function.full",
            heading(15, NOW, none),
            InvokedFunction {
                log: "invoke/smooth",
                seqno: 7,
                id: id(31),
                run: id(32),
                state: "dead",
                result: b"\x00warm",
                code: "MR3110",
                error: "ValueError: too cold",
            }
        ),
        lent!("upload", heading(16, NOW, none), Upload { sha256: &[7; 32], offset: 1 << 20, data: b"import" }),
    ]
}

fn links() -> Vec<Case> {
    let none = EventId::NONE;
    let step = |namespace, log: &str| PathStep { namespace, log: log.into() };
    let item = Item { log: "raw", data: b"21.5", id: id(30), hlc: Hlc::from_bits(NOW), ..Item::default() };
    let refused = |retry_after_ms| Some(Refused { code: "MR2101".into(), detail: "no log 'b'".into(), retry_after_ms });
    vec![
        lent!(
            "link",
            heading(13, NOW, none),
            Link { stream: "outbox", namespace: 0x0123_4567_89ab, epoch: 3, ..Link::default() }
        ),
        lent!(
            "link.target",
            heading(13, NOW, none),
            Link {
                stream: "relay/a",
                namespace: NamespaceId::MAX,
                epoch: EventId::EPOCH_MAX,
                target: Some("raw"),
                path: vec![step(1, "far"), step(NamespaceId::MAX, "near/b")],
                ..Link::default()
            }
        ),
        lent!(
            "link.forked",
            heading(13, NOW, none),
            Link {
                stream: "outbox",
                namespace: 0x0123_4567_89ab,
                epoch: 3,
                life: Some(Life { number: 7, id: u64::MAX }),
                forked: true,
                ..Link::default()
            }
        ),
        owned("linked", heading(13, NOW, none), Linked { number: 0, namespace: 1, epoch: 0, life: None }),
        owned(
            "linked.resumed",
            heading(13, NOW, none),
            Linked {
                number: u64::MAX,
                namespace: NamespaceId::MAX,
                epoch: EventId::EPOCH_MAX,
                life: Some(Life { number: 7, id: 1 }),
            },
        ),
        lent!("deliver", heading(14, NOW, none), Deliver { link: 13, first: 1, gap: false, items: vec![item.clone()] }),
        lent!(
            "deliver.full",
            heading(15, NOW, none),
            Deliver {
                link: 13,
                first: 300,
                gap: true,
                items: vec![
                    Item { function: Some("smooth"), ..item },
                    Item { void: true, id: id(31), ..Item::default() },
                ],
            }
        ),
        owned("delivered", heading(14, NOW, none), Delivered { number: 1, refused: None }),
        owned("delivered.refused", heading(15, NOW, none), Delivered { number: 299, refused: refused(None) }),
        owned("delivered.later", heading(15, NOW, none), Delivered { number: 299, refused: refused(Some(1000)) }),
    ]
}

/// The widths that MessagePack has for lengths.
fn lengths() -> Vec<Case> {
    let none = EventId::NONE;
    const DIGITS: &str = "0123456789abcdef0123456789abcdef";
    let many = |count: usize| (0..count).map(|_| NewRecord { log: "a", data: &[] }).collect::<Vec<_>>();
    let long: &'static str = Box::leak(DIGITS.repeat(8).into_boxed_str());
    let bytes: &'static [u8] = Box::leak((0..=255).chain([0]).collect::<Vec<u8>>().into_boxed_slice());
    vec![
        lent!("text.31", heading(1, NOW, none), Show { path: &DIGITS[..31] }),
        lent!("text.32", heading(1, NOW, none), Show { path: DIGITS }),
        lent!("text.255", heading(1, NOW, none), Show { path: &long[..255] }),
        lent!("text.256", heading(1, NOW, none), Show { path: long }),
        lent!("bytes.255", heading(1, NOW, none), Append { log: "a", data: &bytes[..255], ..Append::default() }),
        lent!("bytes.256", heading(1, NOW, none), Append { log: "a", data: &bytes[..256], ..Append::default() }),
        lent!("array.15", heading(1, NOW, none), AppendMany { records: many(15), ..AppendMany::default() }),
        lent!("array.16", heading(1, NOW, none), AppendMany { records: many(16), ..AppendMany::default() }),
    ]
}

/// Shared objects and tasks. Messages that not every client implements.
pub fn others() -> Vec<Case> {
    objects().into_iter().chain(manage()).chain(devices()).collect()
}

fn devices() -> Vec<Case> {
    let none = EventId::NONE;
    vec![
        lent!(
            "attach",
            heading(2, NOW, none),
            Attach { device: "kitchen", namespace: 7, epoch: 3, first: 1, next: 70_000, jumped_ms: 0 }
        ),
        owned("attached", heading(2, NOW, none), Attached { sequence: 69_000 }),
        lent!("entries", heading(3, NOW, none), Entries { sector: 12, at: 40, bytes: b"\x05\0burst" }),
        owned("entered", heading(3, NOW, none), Entered { sequence: 69_010 }),
    ]
}

fn objects() -> Vec<Case> {
    let none = EventId::NONE;
    const SESSION: &[u8] = &[7; 16];
    const FENCE: Fence<'_> = Fence { name: "tick", token: 70_000 };
    let call = || Call {
        session: SESSION,
        call: 3,
        acked: 2,
        kind: "AtomicInt",
        key: "hits",
        method: "add_and_get",
        arguments: &[0x91, 5],
        ..Call::default()
    };
    vec![
        lent!("session", heading(16, NOW, none), Session { session: SESSION, lease_ms: 10_000, ..Session::default() }),
        lent!(
            "session.end",
            heading(16, NOW, none),
            Session { session: SESSION, application: "farm", lease_ms: 0, resume: true }
        ),
        owned("opened", heading(16, NOW, none), Opened { resumed: true, lease_ms: 10_000 }),
        lent!("call", heading(17, NOW, none), Call { ..call() }),
        lent!("call.fence", heading(17, NOW, none), Call { fence: Some(FENCE), ..call() }),
        lent!(
            "append.fence",
            heading(18, NOW, none),
            Append { log: "raw", data: b"x", fence: Some(FENCE), ..Append::default() }
        ),
        lent!(
            "call.full",
            heading(18, NOW, none),
            Call {
                new: &[0x91, 0],
                incarnation: u64::MAX,
                must_exist: true,
                must_create: true,
                persistent: true,
                give_up: true,
                wait_ms: 20_000,
                ..call()
            }
        ),
        lent!("returned", heading(17, NOW, none), Returned { incarnation: NOW, waiting: false, value: &[5] }),
        lent!("returned.waiting", heading(18, NOW, none), Returned { incarnation: 0, waiting: true, value: &[] }),
        lent!("raised", heading(17, NOW, none), Raised { incarnation: 1, class: "OverflowError", text: "too large" }),
        lent!(
            "invoke",
            heading(19, NOW, none),
            Invoke { pool: "default", bodies: false, tasks: vec![Bytes::new(&[1; 25])], key: "task:1" }
        ),
        lent!(
            "invoke.bodies",
            heading(20, NOW, none),
            Invoke { pool: "default", bodies: true, tasks: vec![Bytes::new(b"a"), Bytes::new(b"")], key: "task:2" }
        ),
        owned("invoked", heading(19, NOW, none), Invoked { first: 1 }),
        lent!("revoke", heading(21, NOW, none), Revoke { pool: "default", task: 1 }),
        owned("revoked", heading(21, NOW, none), Revoked { cancelled: true }),
    ]
}

//! Connections that share a thread: none keeps the others from their turn, nor from the flush that they wait for.

use super::{connection::Connection, requests::RECORDS_MAX, serve, serve_with};
use crate::admission::Identity;
use crate::{
    Hosted,
    server::{Speaking, Stream},
};
use millrace_node::{AppendOptions, CreateOptions, Durability, Namespace, Served};
use millrace_wire::protocol::{
    Append, Appended, Failure, Get, Heading, Hello, Message, PREFACE, Ping, Range, Records, Tail, VERSION, Welcome,
    encode, split,
};
use std::{sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    runtime::Builder,
    sync::Notify,
    task::yield_now,
    time::timeout,
};

/// Nothing here takes this long unless it hangs.
const HANG: Duration = Duration::from_secs(120);

pub(crate) fn hosted(durability: Durability) -> (tempfile::TempDir, Arc<Hosted>) {
    let dir = tempfile::tempdir().unwrap();
    let options = CreateOptions { segment_bytes: 8 << 20, durability, ..CreateOptions::default() };
    let namespace = Namespace::create(dir.path(), &options).unwrap();
    namespace.create_log(&"a".parse().unwrap(), 1000).unwrap();
    let served = Served::new("farm".parse().unwrap(), namespace).unwrap();
    (dir, Arc::new(Hosted::new(vec![served])))
}

pub(crate) fn framed<M: Message>(out: &mut Vec<u8>, request: u64, message: &M) {
    encode(out, Heading { request, ..Heading::default() }, message);
}

pub(crate) fn hello() -> Vec<u8> {
    let mut out = Vec::new();
    framed(&mut out, 1, &Hello { oldest: VERSION, newest: VERSION, client: "test", ..Hello::default() });
    out
}

/// The far end of a connection that this thread serves, which has sent `bytes` already.
async fn connected(hosted: &Arc<Hosted>, bytes: &[u8]) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut ours = ours;
    ours.write_all(bytes).await.unwrap();
    let hosted = hosted.clone();
    tokio::spawn(async move {
        let (stream, identity) = (Stream::Unix(theirs), Identity::at_socket(0, 0));
        let (first, only, stopping) = (PREFACE, None, Arc::default());
        serve(Speaking { first, stream, identity, only, hosted, stopping }).await
    });
    ours
}

/// The bytes of the next frame.
async fn next_bytes(stream: &mut UnixStream) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    stream.read_exact(&mut bytes).await.unwrap();
    let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    bytes.resize(4 + length, 0);
    stream.read_exact(&mut bytes[4..]).await.unwrap();
    bytes
}

/// The kind of the next frame.
async fn next(stream: &mut UnixStream) -> u64 {
    u64::from(split(&next_bytes(stream).await, usize::MAX).unwrap().unwrap().0.kind)
}

#[test]
fn who_asks_for_thousands_at_once_lets_the_others_have_their_turn() {
    const MANY: u64 = 10_000;
    let (_dir, hosted) = hosted(Durability::Memory);
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut flood = hello();
        (0..MANY).for_each(|n| framed(&mut flood, 2 + n, &Ping {}));
        let _flooding = connected(&hosted, &flood).await;
        let mut one = hello();
        framed(&mut one, 2, &Ping {});
        let mut other = connected(&hosted, &one).await;
        let answered = || hosted.counters.wire_requests.load(std::sync::atomic::Ordering::Relaxed);
        // One turn of each, in which the second, that asks for little, is answered.
        while answered() == 0 {
            yield_now().await;
        }
        timeout(HANG, async { (next(&mut other).await, next(&mut other).await) }).await.expect("answers");
        assert!(answered() < MANY / 2, "{} requests of another went first", answered());
        while answered() < MANY + 1 {
            yield_now().await;
        }
    });
}

#[test]
fn a_loop_that_never_sleeps_flushes_all_the_same() {
    let (_dir, hosted) = hosted(Durability::Disk);
    // Unlike that of an event loop, this runtime tells nobody that it has nothing to do: as if it always had something.
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        hosted.turn();
        let mut append = hello();
        framed(&mut append, 2, &Append { log: "a", data: b"x", ..Append::default() });
        let mut waiting = connected(&hosted, &append).await;
        let mut busy = connected(&hosted, &hello()).await;
        next(&mut busy).await;
        next(&mut waiting).await;
        let mut pings = Vec::new();
        (0..100).for_each(|n| framed(&mut pings, 2 + n, &Ping {}));
        let appended = next(&mut waiting);
        let keep_busy = async {
            loop {
                busy.write_all(&pings).await.unwrap();
                for _ in 0..100 {
                    next(&mut busy).await;
                }
            }
        };
        let kind = timeout(HANG, async {
            tokio::select! {
                kind = appended => kind,
                () = keep_busy => unreachable!("it goes on"),
            }
        });
        assert_eq!(kind.await.expect("the append is answered while the other goes on"), u64::from(Appended::TYPE));
    });
}

#[test]
fn clients_that_read_too_slowly_are_disconnected() {
    const LONG_BYTES: usize = 2_000_000;
    let (_dir, hosted) = hosted(Durability::Memory);
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut asked = hello();
        framed(&mut asked, 2, &Append { log: "a", data: &vec![7; LONG_BYTES], ..Append::default() });
        framed(&mut asked, 3, &Get { log: "a", seqno: 1, ..Get::default() });
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let caller = Identity::at_socket(0, 0);
        let connection = Connection::new(Stream::Unix(theirs), caller, hosted.clone(), Duration::from_secs(5));
        let served = tokio::spawn(async move { serve_with(Box::new(connection), &Notify::new()).await });
        ours.write_all(&asked).await.unwrap();
        // Some of it in any five seconds, and yet no tenth.
        let trickle = async {
            let mut taken = 0;
            loop {
                match ours.read(&mut [0; 1000]).await {
                    Ok(0) | Err(_) => break taken,
                    Ok(bytes) => taken += bytes,
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let given_up = timeout(HANG, async {
            tokio::select! {
                ended = served => ended.unwrap().unwrap_err(),
                taken = trickle => panic!("it closed after {taken} bytes without a word"),
            }
        });
        assert_eq!(given_up.await.expect("it goes on for ever").code(), millrace_wire::Code::ConnectionIdle);
    });
}

#[test]
fn a_stopping_host_answers_accepted_requests_and_then_refuses() {
    let (_dir, hosted) = hosted(Durability::Disk);
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        hosted.turn();
        let mut asks = hello();
        framed(&mut asks, 2, &Tail { log: "a", from: 1, credit: 10, ..Tail::default() });
        let mut client = connected(&hosted, &asks).await;
        assert_eq!(next(&mut client).await, u64::from(Welcome::TYPE));
        assert_eq!(next(&mut client).await, u64::from(Records::TYPE), "where the tail begins");
        let mut append = Vec::new();
        framed(&mut append, 3, &Append { log: "a", data: b"x", ..Append::default() });
        client.write_all(&append).await.unwrap();
        while hosted.served()[0].namespace().latest("a").unwrap() == 0 {
            yield_now().await;
        }
        hosted.drain();
        for _ in 0..1000 {
            yield_now().await;
        }
        // The append waits for a flush: it is answered first, whenever that comes.
        hosted.turn();
        let kinds = timeout(HANG, async { (next(&mut client).await, next(&mut client).await) }).await.expect("it ends");
        assert_eq!(kinds, (u64::from(Appended::TYPE), u64::from(Failure::TYPE)));
        let mut rest = Vec::new();
        timeout(HANG, client.read_to_end(&mut rest)).await.expect("it closes").unwrap();
        assert!(rest.is_empty());
    });
}

#[test]
fn an_answer_has_a_bounded_number_of_records_however_short_they_are() {
    let (_dir, hosted) = hosted(Durability::Memory);
    let namespace = hosted.served()[0].namespace();
    namespace.create_log(&"short".parse().unwrap(), 20_000).unwrap();
    let batch = vec![("short", &b""[..]); 1000];
    for _ in 0..=RECORDS_MAX / 1000 {
        namespace.append_many_gated(&batch, AppendOptions::default()).unwrap().wait().unwrap();
    }
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut asks = hello();
        framed(&mut asks, 2, &Range { log: "short", from: 1, count: u32::MAX, durability: None });
        let mut client = connected(&hosted, &asks).await;
        assert_eq!(next(&mut client).await, u64::from(Welcome::TYPE));
        let bytes = timeout(HANG, next_bytes(&mut client)).await.expect("an answer");
        let records: Records<'_> = split(&bytes, usize::MAX).unwrap().unwrap().0.message().unwrap();
        assert_eq!((records.records.len() as u32, records.next), (RECORDS_MAX, u64::from(RECORDS_MAX) + 1));
    });
}

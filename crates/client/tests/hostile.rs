//! Hosts that lie, stall, vanish and talk out of turn: both clients say what was wrong, and neither hangs or breaks.

mod fake;

use fake::{Peer, framed, host, welcome};
use millrace_client::{
    AppendOptions, Client, Options, Place, TailOptions, Wait, blocking,
    credentials::{Left, machine_file},
};
use millrace_security::{
    channel::MAGIC,
    token::{AuthorityId, Grant, Key, Rights, Rules, Token, TokenId},
};
use millrace_wire::{
    Code, EventId, Result,
    protocol::{Appended, Done, Failure, PREFACE, Ping, Pong, Record, Records, Seqno, Welcome},
};
use std::{
    env,
    future::Future,
    net::SocketAddr,
    process::Command,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

fn quick() -> Options {
    Options { connect_timeout_ms: 120_000, request_timeout_ms: 120_000, reconnect_ms: 0, ..Options::default() }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Connects with either client and appends once; the codes of what went wrong.
fn append_with_both(place: &Place, options: &Options) -> [Option<Code>; 2] {
    let code = |result: Result<millrace_client::Receipt>| result.err().map(|error| error.code());
    let blocking = blocking::Client::connect(place, options)
        .and_then(|client| client.append("raw", b"x", AppendOptions::default()));
    let waited = runtime()
        .block_on(async { Client::connect(place, options).await?.append("raw", b"x", AppendOptions::default()).await });
    [code(blocking), code(waited)]
}

#[track_caller]
fn both_fail(script: impl Fn(Peer) + Send + Sync + 'static, options: &Options, code: Code) {
    assert_eq!(append_with_both(&host(script), options), [Some(code); 2]);
}

#[test]
fn a_host_that_behaves_is_understood() {
    assert_eq!(append_with_both(&host(|peer| peer.greeted().serve()), &quick()), [None; 2]);
}

#[test]
fn what_was_sent_before_the_host_closed_answers_nothing() {
    let (greets, both) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2)));
    let (of_host, of_client) = ((greets.clone(), both.clone()), (greets, both));
    let place = host(move |mut peer| {
        let (greets, both) = &of_host;
        let request = peer.hello();
        greets.store(true, Ordering::SeqCst);
        both.wait();
        let appended = framed(request + 1, &Appended { seqno: 7, id: EventId::NONE });
        peer.bytes(&[framed(request, &welcome()), appended].concat());
        drop(peer);
        both.wait();
    });
    // Once the client has greeted, it looks at nothing until the host has closed.
    let wait = Arc::new(move || {
        let (greets, both) = &of_client;
        let waits = greets.swap(false, Ordering::SeqCst);
        if waits {
            both.wait();
            both.wait();
        }
        waits
    });
    let waits = wait.clone();
    let interrupted = move || {
        waits();
        false
    };
    let options = Options { interrupted: Some(Arc::new(interrupted)), silence_max_ms: 4000, ..quick() };
    let blocking = blocking::Client::connect(&place, &options)
        .and_then(|client| client.append("raw", b"x", AppendOptions::default()));
    assert_eq!(blocking.unwrap_err().code(), Code::ConnectionLost);
    let runtime = runtime();
    runtime.spawn(async move {
        while !wait() {
            tokio::task::yield_now().await;
        }
    });
    let waited: Result<millrace_client::Receipt> = runtime.block_on(async {
        Client::connect(&place, &quick()).await?.append("raw", b"x", AppendOptions::default()).await
    });
    assert_eq!(waited.unwrap_err().code(), Code::ConnectionLost);
}

#[test]
fn nobody_listens() {
    // A port that was free a moment ago may be somebody else's by now; this one never is.
    let place = "mr://127.0.0.1:1/farm".parse().unwrap();
    assert_eq!(append_with_both(&place, &quick()), [Some(Code::ConnectFailed); 2]);
    let nowhere = "unix:/nowhere/at/all".parse().unwrap();
    assert_eq!(append_with_both(&nowhere, &quick()), [Some(Code::ConnectFailed); 2]);
}

#[test]
fn greetings_that_are_none() {
    both_fail(|mut peer| assert_ne!(peer.hello(), 0), &quick(), Code::ConnectionLost);
    let options = Options { connect_timeout_ms: 300, ..quick() };
    both_fail(|mut peer| peer.linger_silently(), &options, Code::ConnectTimeout);
    let said = |bytes: Vec<u8>| {
        move |mut peer: Peer| {
            peer.hello();
            peer.bytes(&bytes);
            peer.linger();
        }
    };
    both_fail(said(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()), &quick(), Code::FrameTooLong);
    both_fail(said(framed(9, &welcome())), &quick(), Code::AnswerUnasked);
    both_fail(said(framed(1, &Welcome { version: 3, ..welcome() })), &quick(), Code::VersionUnsupported);
    both_fail(said(framed(1, &Done {})), &quick(), Code::MessageUnexpected);
    both_fail(said([5, 0, 0, 0, 1, 2, 3, 4, 5].to_vec()), &quick(), Code::FrameMalformed);
}

#[test]
fn what_the_host_refuses_keeps_its_code() {
    let refused = |code: &'static str| {
        move |mut peer: Peer| {
            peer.hello();
            peer.send(0, &Failure { code, detail: "so it is", retry_after_ms: None });
        }
    };
    both_fail(refused("MR6021"), &quick(), Code::NotAdmitted);
    both_fail(refused("MR0666"), &quick(), Code::HostCodeUnknown);
    let later = |mut peer: Peer| {
        peer = peer.greeted();
        peer.next();
        peer.send(0, &Failure { code: "MR6008", detail: "too slow", retry_after_ms: None });
    };
    both_fail(later, &quick(), Code::ConnectionIdle);
}

/// After the greeting and the first request, the host says this.
fn answered(bytes: impl Fn(u64) -> Vec<u8> + Send + Sync + 'static) -> impl Fn(Peer) + Send + Sync + 'static {
    move |peer| {
        let mut peer = peer.greeted();
        if let Some((_, request, _)) = peer.next() {
            peer.bytes(&bytes(request));
            peer.linger();
        }
    }
}

#[test]
fn answers_that_are_none() {
    let appended = Appended { seqno: 1, id: EventId::NONE };
    both_fail(answered(move |_| framed(999, &appended)), &quick(), Code::AnswerUnasked);
    both_fail(answered(|_| framed(0, &Seqno { seqno: 1 })), &quick(), Code::AnswerUnasked);
    both_fail(answered(|request| framed(request, &Seqno { seqno: 1 })), &quick(), Code::MessageUnexpected);
    both_fail(answered(|_| vec![0xff; 100]), &quick(), Code::FrameTooLong);
    both_fail(answered(|_| vec![1, 0, 0, 0, 0xc0]), &quick(), Code::FrameMalformed);
    let cut = |peer: Peer| {
        let mut peer = peer.greeted();
        if let Some((_, request, _)) = peer.next() {
            let frame = framed(request, &Appended { seqno: 1, id: EventId::NONE });
            peer.bytes(&frame[..frame.len() - 1]);
        }
    };
    both_fail(cut, &quick(), Code::ConnectionLost);
}

#[test]
fn hosts_that_do_not_answer() {
    let busy = Options { request_timeout_ms: 300, silence_max_ms: 60_000, ..quick() };
    both_fail(|peer| peer.greeted().only_pong(), &busy, Code::RequestTimeout);
    let dead = Options { request_timeout_ms: 60_000, silence_max_ms: 300, ..quick() };
    both_fail(|peer| peer.greeted().linger(), &dead, Code::PeerSilent);
    // One that pongs is waited for, however long that is beyond the silence.
    let slow = |peer: Peer| {
        let mut peer = peer.greeted();
        let Some((_, request, _)) = peer.next() else { return };
        for _ in 0..3 {
            let Some((4, ping, _)) = peer.next() else { return };
            peer.send(ping, &millrace_wire::protocol::Pong {});
        }
        peer.send(request, &Appended { seqno: 5, id: EventId::NONE });
        peer.linger();
    };
    // However long: at some silence this machine is fast enough to pong in half of it.
    let place = host(slow);
    let is_waited_for = |silence_max_ms| {
        let reported = append_with_both(&place, &Options { silence_max_ms, ..dead.clone() });
        assert!(reported.iter().all(|code| code.is_none_or(|code| code == Code::PeerSilent)), "{reported:?}");
        reported == [None; 2]
    };
    assert!([300, 3_000, 30_000].into_iter().any(is_waited_for));
}

#[test]
fn a_host_may_ask_whether_the_client_is_there_and_drip_its_answers() {
    let drip = |peer: Peer| {
        let mut peer = peer.greeted();
        let Some((_, request, _)) = peer.next() else { return };
        peer.send(0, &Ping {});
        assert_eq!(peer.next(), Some((5, 0, 77)), "a pong");
        for byte in framed(request, &Appended { seqno: 5, id: EventId::NONE }) {
            peer.bytes(&[byte]);
        }
        peer.linger();
    };
    assert_eq!(append_with_both(&host(drip), &quick()), [None; 2]);
}

#[test]
fn answers_may_come_in_any_order_and_twice_is_once_too_often() {
    let reversed = |peer: Peer| {
        let mut peer = peer.greeted();
        let requests: Vec<u64> = (0..10).filter_map(|_| peer.next()).map(|(_, request, _)| request).collect();
        for request in requests.iter().rev() {
            peer.send(*request, &Appended { seqno: *request, id: EventId::NONE });
        }
        if let Some(first) = requests.first() {
            peer.send(*first, &Appended { seqno: 0, id: EventId::NONE });
        }
        peer.linger();
    };
    let place = host(reversed);
    let mut pipeline = blocking::Client::connect(&place, &quick()).unwrap().pipeline(64).unwrap();
    (0..10).for_each(|_| pipeline.append("raw", b"x", AppendOptions::default()).unwrap());
    let outcome = pipeline.drain();
    // The answer too many may come with the others or after them.
    assert!(outcome.as_ref().map_or_else(|error| error.code() == Code::AnswerUnasked, |all| all.len() == 10));
    runtime().block_on(async {
        let client = Client::connect(&place, &quick()).await.unwrap();
        let mut pending = Vec::new();
        for _ in 0..10 {
            pending.push(client.send_append("raw", b"x", AppendOptions::default()).await.unwrap());
        }
        for one in pending {
            let request = one.request();
            assert_eq!(one.receipt().await.unwrap().seqno, request);
        }
        let after = client.append("raw", b"x", AppendOptions::default()).await.unwrap_err();
        assert_eq!(after.code(), Code::AnswerUnasked);
        assert!(client.is_closed());
    });
}

/// A client that lost a wake-up would never hear of the second answer: it does not look at a silent host for hours.
#[test]
fn an_answer_that_comes_by_itself_wakes_who_waits_for_it() {
    let place = host(|peer: Peer| {
        let mut peer = peer.greeted();
        let mut first = None;
        while let Some((kind, request, _)) = peer.next() {
            match (kind, first) {
                (4, _) => drop(peer.send(request, &Pong {})),
                (_, None) => first = Some(request),
                (_, Some(one)) => {
                    peer.send(one, &Appended { seqno: one, id: EventId::NONE });
                    std::thread::sleep(Duration::from_millis(20));
                    peer.send(request, &Appended { seqno: request, id: EventId::NONE });
                    first = None;
                }
            }
        }
    });
    runtime().block_on(async {
        let options = Options { silence_max_ms: 3_600_000 * 10, request_timeout_ms: 0, ..quick() };
        let client = Client::connect(&place, &options).await.unwrap();
        let rounds = async {
            for _ in 0..20 {
                let one = client.send_append("raw", b"x", AppendOptions::default()).await.unwrap();
                let two = client.send_append("raw", b"x", AppendOptions::default()).await.unwrap();
                one.receipt().await.unwrap();
                two.receipt().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(120), rounds).await.expect("each wait is woken");
    });
}

#[test]
fn a_tail_takes_no_more_than_it_gave_credit_for() {
    let flood = |peer: Peer| {
        let mut peer = peer.greeted();
        let Some((kind, request, _)) = peer.next() else { return };
        if kind != 26 {
            peer.send(request, &Seqno { seqno: 0 });
            return peer.linger();
        }
        let records = vec![Record { seqno: 1, data: b"x", ..Record::default() }; 100];
        while peer.send(request, &Records { incarnation: 1, records: records.clone(), next: 101 }) {}
    };
    let place = host(flood);
    let mut tail = blocking::Client::connect(&place, &quick()).unwrap().tail("raw", 1, TailOptions::default()).unwrap();
    assert_eq!(tail.next().unwrap_err().code(), Code::AnswerUnasked);
    let code = runtime().block_on(async {
        let client = Client::connect(&place, &quick()).await?;
        client.tail("raw", 1, TailOptions::default()).await?.next().await
    });
    assert_eq!(code.unwrap_err().code(), Code::AnswerUnasked);
}

#[test]
fn empty_messages_of_a_tail_do_not_pile_up() {
    let chatter = |peer: Peer| {
        let mut peer = peer.greeted();
        let Some((_, request, _)) = peer.next() else { return };
        for next in 1..10_000 {
            peer.send(request, &Records { incarnation: 1, records: vec![], next });
        }
        let record = Record { seqno: 9_999, data: b"x", ..Record::default() };
        peer.send(request, &Records { incarnation: 1, records: vec![record], next: 10_000 });
        peer.linger();
    };
    let place = host(chatter);
    runtime().block_on(async {
        let client = Client::connect(&place, &quick()).await.unwrap();
        let mut tail = client.tail("raw", 1, TailOptions::default()).await.unwrap();
        assert_eq!(tail.next().await.unwrap().seqno, 9_999);
        assert_eq!(tail.cursor().next, 10_000);
    });
}

#[test]
fn a_host_that_takes_nothing_is_not_fed_for_ever() {
    let options = Options { silence_max_ms: 500, in_flight_bytes_max: 4 << 20, ..quick() };
    let deaf = |peer: Peer| {
        let peer = peer.greeted();
        std::thread::sleep(Duration::from_secs(600));
        drop(peer);
    };
    let place = host(deaf);
    let data = vec![7; 1 << 19];
    let mut pipeline = blocking::Client::connect(&place, &options).unwrap().pipeline(64).unwrap();
    let stuck = (0..64).find_map(|_| pipeline.append("raw", &data, AppendOptions::default()).err());
    assert_eq!(stuck.unwrap().code(), Code::PeerSilent);
    runtime().block_on(async {
        let client = Client::connect(&place, &options).await.unwrap();
        let mut pending = Vec::new();
        let error = loop {
            match client.send_append("raw", &data, AppendOptions::default()).await {
                Ok(one) => pending.push(one),
                Err(error) => break error,
            }
        };
        assert_eq!(error.code(), Code::PeerSilent);
        assert!(pending.len() <= 8, "{} requests of 512 KiB are in flight; 4 MiB may be", pending.len());
    });
}

#[test]
fn a_record_that_fits_no_frame_is_refused_before_it_is_sent() {
    let place = host(|peer| peer.greeted().serve());
    let data = vec![0; (1 << 20) + 1];
    let client = blocking::Client::connect(&place, &quick()).unwrap();
    let error = client.append("raw", &data, AppendOptions::default()).unwrap_err();
    assert_eq!(error.code(), Code::FrameTooLong);
    client.append("raw", b"x", AppendOptions::default()).unwrap();
}

#[test]
fn a_connection_that_died_while_idle_is_replaced_for_what_may_be_repeated() {
    let count = Arc::new(AtomicUsize::new(0));
    let connections = count.clone();
    let place = host(move |peer| {
        let first = connections.fetch_add(1, Ordering::SeqCst) == 0;
        let mut peer = peer.greeted();
        while let Some((_, request, _)) = peer.next() {
            if first {
                return; // Asked, and gone.
            }
            peer.send(request, &Seqno { seqno: 7 });
        }
    });
    let client = blocking::Client::connect(&place, &quick()).unwrap();
    assert_eq!(client.latest("raw", 0, Wait::default()).unwrap(), 7);
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[test]
fn an_append_without_a_key_is_never_repeated() {
    let count = Arc::new(AtomicUsize::new(0));
    let asked = count.clone();
    let place = host(move |peer| {
        let mut peer = peer.greeted();
        if peer.next().is_some() {
            asked.fetch_add(1, Ordering::SeqCst);
        }
    });
    let client = blocking::Client::connect(&place, &quick()).unwrap();
    let error = client.append("raw", b"x", AppendOptions::default()).unwrap_err();
    assert_eq!((error.code(), count.load(Ordering::SeqCst)), (Code::ConnectionLost, 1));
}

#[test]
fn an_interrupted_call_gives_up() {
    let place = host(|peer| peer.greeted().only_pong());
    let options = Options { interrupted: Some(Arc::new(|| true)), silence_max_ms: 200, ..quick() };
    let client = blocking::Client::connect(&place, &options).unwrap();
    let error = client.get("raw", 1, Wait::ms(60_000)).unwrap_err();
    assert_eq!(error.code(), Code::CallInterrupted);
}

#[test]
fn whoever_waits_is_told_when_the_task_of_the_connection_ends() {
    let place = host(|peer| peer.greeted().linger());
    let (of_connection, of_user) = (runtime(), runtime());
    let options = Options { request_timeout_ms: 3_600_000, silence_max_ms: 3_600_000, ..quick() };
    let client = of_connection.block_on(Client::connect(&place, &options)).unwrap();
    let append = async { client.append("a", b"x", AppendOptions::default()).await };
    let asked = of_user.block_on(async {
        let mut append = std::pin::pin!(append);
        let first = std::future::poll_fn(|cx| std::task::Poll::Ready(append.as_mut().poll(cx))).await;
        assert!(first.is_pending());
        // With its runtime goes the task, as it would by a panic.
        of_connection.shutdown_background();
        append.await
    });
    assert_eq!(asked.unwrap_err().code(), Code::ConnectionLost);
}

#[test]
fn a_hanging_name_service_delays_no_client() {
    let place: Place = "mr://far.example:1/farm".parse().unwrap();
    let hangs = |_: &str, _: u16| -> std::io::Result<Vec<std::net::SocketAddr>> {
        loop {
            std::thread::park();
        }
    };
    let options = Options { connect_timeout_ms: 50, resolve: Some(Arc::new(hangs)), ..quick() };
    assert_eq!(append_with_both(&place, &options), [Some(Code::ConnectTimeout); 2]);
    let interrupted = Some(Arc::new(|| true) as Arc<dyn Fn() -> bool + Send + Sync>);
    let options = Options { connect_timeout_ms: u32::MAX, request_timeout_ms: 100, interrupted, ..options };
    let error = blocking::Client::connect(&place, &options).map(drop).unwrap_err();
    assert_eq!(error.code(), Code::CallInterrupted);
}

#[test]
fn a_host_that_stops_is_heard_and_another_takes_its_place() {
    let stops = |mut peer: Peer| {
        peer = peer.greeted();
        peer.next();
        peer.send(0, &Failure { code: "MR6053", detail: "the host is stopping", retry_after_ms: Some(1000) });
    };
    both_fail(stops, &quick(), Code::HostStopping);
    // Its last answer counts, also if the last word comes with it.
    let answers = answered(|request| {
        let last = Failure { code: "MR6053", detail: "the host is stopping", retry_after_ms: Some(1000) };
        [framed(request, &Appended { seqno: 1, id: EventId::NONE }), framed(0, &last)].concat()
    });
    assert_eq!(append_with_both(&host(answers), &quick()), [None; 2]);
    // It stops while nothing is asked: the next request goes to whoever is there then, also one that is never repeated.
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let place = host(move |peer| {
        let mut peer = peer.greeted();
        if counted.fetch_add(1, Ordering::SeqCst) > 0 {
            return peer.serve();
        }
        peer.send(0, &Failure { code: "MR6053", detail: "the host is stopping", retry_after_ms: Some(1000) });
        counted.fetch_add(1, Ordering::SeqCst);
        peer.linger();
    });
    let client = blocking::Client::connect(&place, &quick()).unwrap();
    while count.load(Ordering::SeqCst) < 2 {
        std::thread::yield_now();
    }
    // A connection that lay idle for half a second is looked at before it is used.
    std::thread::sleep(Duration::from_millis(600));
    client.append("raw", b"x", AppendOptions::default()).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 3);
    count.store(0, Ordering::SeqCst);
    let resilient = millrace_client::Resilient::new(place, Options { reconnect_ms: 120_000, ..quick() });
    runtime().block_on(resilient.append("raw", b"x", AppendOptions::default())).unwrap();
}

/// A host of this machine that takes connections in clear or refuses them, and what the two clients began each connection with.
fn near(refuses: bool, has_token: bool) -> ([Option<Code>; 2], Vec<[u8; 4]>) {
    let begun: Arc<Mutex<Vec<[u8; 4]>>> = Arc::default();
    let of_host = begun.clone();
    let place = host(move |mut peer| {
        let first = peer.first();
        of_host.lock().unwrap().push(first);
        if first != PREFACE {
            return; // It has no key for the channel.
        }
        let request = peer.greeting();
        if refuses {
            peer.send(0, &Failure { code: Code::LoopbackRefused.id(), detail: "", retry_after_ms: None });
        } else {
            peer.send(request, &welcome());
            peer.serve();
        }
    });
    let Place::Tcp(peer) = &place else { panic!("{place} is a port") };
    let file = machine_file(SocketAddr::from(([127, 0, 0, 1], peer.port))).unwrap();
    let (grants, ids) = (vec![Grant::namespace(Rights::ALL)], vec![TokenId([1; 8])]);
    let rules = Rules { grants, ids, ..Rules::default() };
    let token = Token::issue(&Key::new(&[7; 32]), AuthorityId([2; 8]), 1, &rules).unwrap();
    let _left = has_token.then(|| Left::leave(file, &format!("farm {}\n", *token.to_text())).unwrap());
    let ended = append_with_both(&place, &quick());
    let begun = begun.lock().unwrap().clone();
    (ended, begun)
}

#[test]
fn the_token_that_a_host_left_is_used_where_nobody_vouches_for_both_ends() {
    const NAME: &str = "the_token_that_a_host_left_is_used_where_nobody_vouches_for_both_ends";
    const INSIDE: &str = "MILLRACE_TEST_INSIDE";
    if env::var_os(INSIDE).is_none() {
        // The environment says where tokens are left, and is of the whole process.
        let dir = tempfile::tempdir().unwrap();
        let mut again = Command::new(env::current_exe().unwrap());
        again.args(["--exact", NAME]).env(INSIDE, "1").env_remove("MILLRACE_CAPABILITY");
        again.env("XDG_RUNTIME_DIR", dir.path()).env("XDG_STATE_HOME", dir.path());
        assert!(again.status().unwrap().success());
        return;
    }
    // The kernel names this user to both: nothing is encrypted.
    assert_eq!(near(false, true), ([None; 2], vec![PREFACE; 2]));
    // The host does not take the kernel's word: the channel is opened, which this one has no key for.
    let (ended, begun) = near(true, true);
    assert_eq!(begun, [PREFACE, MAGIC, PREFACE, MAGIC]);
    assert_eq!(ended, [Some(Code::ConnectionLost); 2]);
    // There is nothing else to show.
    assert_eq!(near(true, false), ([Some(Code::LoopbackRefused); 2], vec![PREFACE; 2]));
}

//! MQTT 3.1.1 and 5.0: clients of MQTT append to logs and follow them.
//!
//! ```text
//!  bytes --> line: packets --> Access: append, through the gate --> PUBACK
//!  journal --> hub: feeder --> positions --> session --> line: Access, through the gate --> PUBLISH
//! ```
//!
//! [`hub`] has the sessions of a namespace, [`line`] is one connection, [`incoming`] has the messages that it appends, [`outgoing`] those
//! that it sends, [`will`] those that are appended when a client is gone, and [`saving`] what outlives the host. The packets, the rules and
//! the state of a session are in the crate `mqtt`.

pub mod bridge;
mod hub;
mod incoming;
mod line;
mod outgoing;
mod saving;
mod shown;
mod will;

pub(crate) use hub::Mqtt;
pub(crate) use shown::{clients, why};

use crate::{
    Hosted,
    admission::{Identity, refused},
    memory::Account,
    patience,
    server::{Protocol, Rewound, Speaking},
};
use hub::Key;
use line::{Line, Opening};
use millrace_mqtt::Allowed;
use millrace_mqtt::packet::{
    CONNECT_MAX_BYTES, Connect, Fault, PACKET_MAX_BYTES, Version, connected, frame, reason, speaks_5,
};
use millrace_node::{
    Access, Caller, Served,
    token::{Peer, Proof, TEXT_PREFIX, Token, Way},
};
use millrace_wire::{Code, Defence, Error, Result};
use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Notify,
    task::yield_now,
    time::timeout,
};

/// Sessions of one namespace, with and without a connection.
const SESSIONS_MAX: usize = 100_000;
/// Most of them of one caller.
const SESSIONS_OF_ONE_MAX: usize = 25_000;
/// A session without a connection is kept for at most 30 days.
const EXPIRY_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// Of this expiry 5.0 says that it never ends.
const EXPIRY_NEVER: u32 = u32::MAX;
/// How long what a refused client sends is read.
const LINGER: Duration = Duration::from_secs(2);
/// The longest client id.
const CLIENT_MAX_BYTES: usize = 256;
/// How much of a CONNECT is read at a time.
const CONNECT_READ_BYTES: usize = 4 << 10;

/// The name of listeners at which MQTT is spoken without encryption, by users of MQTT only.
const PLAIN: &str = "mqtt-plain";

/// Connections that begin with the first byte of a CONNECT.
pub(crate) const PROTOCOL: Protocol = Protocol {
    alpn: b"mqtt",
    listeners: &["mqtt", PLAIN],
    plain: Some((PLAIN, has_users)),
    claims: |first| first[0] == 0x10,
    serve: |speaking| Box::pin(serve(speaking)),
    begins: |hosted| Box::pin(restore(hosted)),
    // The version of the client is not known: this is a CONNACK of 3.1.1, which says that the server is unavailable.
    refusal: |_| {
        let mut out = Vec::new();
        connected(&mut out, Version::V3, Err(reason::BUSY));
        out
    },
};

/// Whether there are users for a listener without encryption that other machines can reach.
fn has_users(hosted: &Hosted) -> Result<()> {
    for served in hosted.served().iter() {
        if served.has_mqtt_users()? {
            return Ok(());
        }
    }
    Err(Code::MqttPlainRefused.error(format!("{PLAIN}: there is no MQTT user")))
}

/// Reads the sessions that earlier hosts saved, since clients may have left wills there.
async fn restore(hosted: Arc<Hosted>) {
    for served in hosted.served().iter() {
        if !served.has_mqtt_sessions().unwrap_or(true) {
            continue;
        }
        if let Err(error) = hosted.mqtt.hub(served).ready().await {
            let (name, code) = (served.name(), error.code().id());
            tracing::warn!(target: "requests", protocol = "mqtt", code, "sessions of {name}: {}", error.detail());
        }
    }
}

/// Reads the users of MQTT, on a thread that may wait, where that takes longer than a look.
async fn read_users(hosted: &Hosted) {
    for served in hosted.served().iter().filter(|served| !served.has_mqtt_users_at_hand()) {
        if let Err(error) = served.own_access().submit(Access::read_mqtt_users).await.await {
            tracing::warn!(target: "requests", protocol = "mqtt", code = error.code().id(), "{}", error.detail());
        }
    }
}

async fn serve(Speaking { first, stream, identity, only, hosted, stopping }: Speaking) -> Result<()> {
    // Where TLS is spoken at that address, it is as good as elsewhere.
    let is_plain = only == Some(PLAIN) && identity.peer.way == Way::Channel;
    let mut stream = Rewound::new(first, stream);
    let mut input = Vec::new();
    let greeting = timeout(patience::client(), connect(&mut stream, &mut input));
    let length = match hosted.silence.until(greeting).await {
        Some(Ok(Ok(length))) => length,
        Some(Ok(Err(Some(fault)))) => return refuse(stream, version_of(&input), &fault, &hosted).await,
        _ => {
            hosted.counters.dropped.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
    };
    read_users(&hosted).await;
    let (opening, connect) = match open(&input[..length], &hosted, (&identity, is_plain)) {
        Ok(opened) => opened,
        Err((version, fault)) => return refuse(stream, version, &fault, &hosted).await,
    };
    let account = Account::of(opening.principal());
    account.within(speak(stream, input.split_off(length), opening, connect, hosted, stopping)).await
}

/// What of a CONNECT is needed once it is read.
struct Begin {
    client: String,
    version: Version,
    clean: bool,
    expiry: Duration,
    expiry_said: Option<u32>,
    is_named: bool,
}

async fn speak(
    mut stream: Rewound,
    input: Vec<u8>,
    opening: Opening,
    begin: Begin,
    hosted: Arc<Hosted>,
    stopping: Arc<Notify>,
) -> Result<()> {
    let hub = hosted.mqtt.hub(opening.access.served());
    let key = Key::new(opening.principal(), &begin.client);
    let opened = match hub.ready().await {
        Ok(()) => hub.open(&key, begin.clean, begin.expiry).await,
        Err(error) => Err(error),
    };
    let (slot, present) = match opened {
        Ok(opened) => opened,
        Err(error) => return refuse(stream, begin.version, &Fault::new(reason::QUOTA, error), &hosted).await,
    };
    let mut line = Box::new(Line::new(opening, hub, slot, hosted.clone(), input));
    line.greet(present, (!begin.is_named).then_some(&*begin.client), begin.expiry_said.map(|_| begin.expiry));
    let mut stopped = pin!(stopping.notified());
    stopped.as_mut().enable();
    let fault = loop {
        let polled = std::future::poll_fn(|context| line.poll(context, &mut stream, stopped.as_mut())).await;
        match polled {
            line::LineOver::Turn => yield_now().await,
            line::LineOver::Connection(fault) => break fault,
        }
    };
    drop(line);
    if fault.is_some() {
        hosted.counters.dropped.fetch_add(1, Ordering::Relaxed);
        // A client that is still sending may disconnect without having received the reason.
        let _ = timeout(LINGER, close(stream)).await;
    }
    Ok(())
}

async fn close(mut stream: Rewound) -> std::io::Result<()> {
    stream.shutdown().await?;
    let (mut unwanted, mut left) = (vec![0; 16 << 10], 1usize << 20);
    while left > 0 {
        match stream.read(&mut unwanted).await? {
            0 => break,
            bytes => left = left.saturating_sub(bytes),
        }
    }
    Ok(())
}

/// Reads the first packet; its length.
///
/// # Errors
/// A fault, or none if the client is gone.
async fn connect(stream: &mut Rewound, input: &mut Vec<u8>) -> Result<usize, Option<Fault>> {
    loop {
        if let Some((.., length)) = frame(input, CONNECT_MAX_BYTES).map_err(Some)? {
            return Ok(length);
        }
        let before = input.len();
        input.resize(before + CONNECT_READ_BYTES, 0);
        let read = stream.read(&mut input[before..]).await.map_err(|_| None)?;
        input.truncate(before + read);
        if read == 0 {
            return Err(None);
        }
    }
}

/// The version of a CONNECT that cannot be read.
fn version_of(packet: &[u8]) -> Version {
    if speaks_5(packet) { Version::V5 } else { Version::V3 }
}

/// Refuses a client in its version.
async fn refuse(mut stream: Rewound, version: Version, fault: &Fault, hosted: &Hosted) -> Result<()> {
    hosted.counters.dropped.fetch_add(1, Ordering::Relaxed);
    let code = fault.error.code().id();
    tracing::info!(target: "connections", protocol = "mqtt", code, "refused: {}", fault.error.detail());
    let mut out = Vec::new();
    let is_wrong = [reason::MALFORMED, reason::PROTOCOL_ERROR, reason::TOPIC_INVALID, reason::TOO_LARGE];
    // 3.1.1 has no code for a packet that is wrong, and wants no answer to it.
    if version == Version::V5 || !is_wrong.contains(&fault.reason) {
        connected(&mut out, version, Err(fault.reason));
    }
    let _ = timeout(LINGER, async {
        stream.write_all(&out).await?;
        close(stream).await
    })
    .await;
    Ok(())
}

/// Who the client is, and what it asks for.
fn open(
    packet: &[u8],
    hosted: &Arc<Hosted>,
    (identity, is_plain): (&Identity, bool),
) -> std::result::Result<(Opening, Begin), (Version, Fault)> {
    let unread = |fault: Fault| (version_of(packet), fault);
    let Some((first, body, _)) = frame(packet, CONNECT_MAX_BYTES).map_err(unread)? else {
        return Err(unread(Fault::malformed("the first packet is cut off")));
    };
    let connect = Connect::read(first, body).map_err(unread)?;
    let version = connect.version;
    let refused = |reason: u8, error: Error| (version, Fault::new(reason, error));
    if connect.properties.authenticates {
        let error = Code::MqttPacketInvalid.error("the client asks for an authentication method");
        return Err(refused(reason::BAD_AUTHENTICATION, error));
    }
    if connect.client.len() > CLIENT_MAX_BYTES
        || (connect.client.is_empty() && !connect.clean && version == Version::V3)
    {
        let error = format!("a client id of {} bytes", connect.client.len());
        return Err(refused(reason::CLIENT_ID_INVALID, Code::MqttPacketInvalid.error(error)));
    }
    let (access, caller, topics) = admitted(hosted, (identity, is_plain), &connect).map_err(|error| {
        let reason = if connect.password.is_some() { reason::BAD_CREDENTIALS } else { reason::NOT_AUTHORIZED };
        refused(reason, error)
    })?;
    let client = match connect.client {
        "" => match millrace_node::secrets::random_id() {
            Ok(id) => id.iter().map(|byte| format!("{byte:02x}")).collect(),
            Err(error) => return Err(refused(reason::UNSPECIFIED, error)),
        },
        client => client.to_owned(),
    };
    let seconds = match (version, connect.clean) {
        (Version::V3, true) => 0,
        (Version::V3, false) => EXPIRY_NEVER,
        (Version::V5, _) => connect.properties.session_expiry_s.unwrap_or(0),
    };
    let expiry = Duration::from_secs(seconds.into()).min(EXPIRY_MAX);
    let shorter = version == Version::V5 && expiry.as_secs() < seconds.into();
    let begin = Begin {
        version,
        clean: connect.clean,
        expiry,
        expiry_said: shorter.then_some(seconds),
        is_named: !connect.client.is_empty(),
        client,
    };
    let packet_max_bytes = connect.properties.packet_max_bytes.map_or(PACKET_MAX_BYTES, |most| most as usize);
    let opening = Opening {
        access,
        caller,
        topics,
        version,
        keep_alive: Duration::from_secs(connect.keep_alive_s.into()),
        receive_max: connect.properties.receive_max.unwrap_or(u16::MAX).into(),
        packet_max_bytes: packet_max_bytes.min(PACKET_MAX_BYTES),
        will: connect.will.map(|will| line::LastWill {
            topic: will.topic.into(),
            payload: will.payload.into(),
            headers: will.headers,
            delay: Duration::from_secs(will.delay_s.into()),
            row: None,
        }),
    };
    Ok((opening, begin))
}

/// What a client was admitted to: a namespace, and for a user of MQTT its topics.
type Admitted = (Access, Arc<Caller>, Option<Arc<Allowed>>);

/// The namespace that the client may use: the password is a capability; without one, the connection says who it is. The user's name may be
/// the name of a namespace. Without encryption, only the password of a user of MQTT counts.
fn admitted(hosted: &Arc<Hosted>, (identity, is_plain): (&Identity, bool), connect: &Connect<'_>) -> Result<Admitted> {
    let user = connect.user.unwrap_or_default();
    let is_namespace = hosted.served().iter().any(|served| **served.name() == *user);
    let namespace = if is_namespace { user } else { "" };
    let only_users = is_plain && Defence::PlainMqtt.stands();
    let Some(password) = connect.password else {
        if only_users {
            return Err(refused());
        }
        let access = hosted.access_of(identity, namespace)?;
        let caller = match (&identity.holder, &identity.owner) {
            (Some((_, caller)), _) => caller.clone(),
            (None, Some(owner)) => owner.clone(),
            (None, None) => return Err(refused()),
        };
        return Ok((access, caller, None));
    };
    if !identity.is_private() && !is_plain {
        return Err(refused());
    }
    let (namespace, token, topics) = match std::str::from_utf8(password) {
        Ok(text) if text.starts_with(TEXT_PREFIX) => (namespace, text.parse().map_err(|_| refused())?, None),
        _ => {
            let (served, allowed, token) = user_of(hosted, user, password)?;
            (&*served.name().clone(), token, Some(Arc::new(allowed)))
        }
    };
    let peer = Peer { way: Way::HttpBearer, ..identity.peer };
    let (served, caller) = hosted.admit(namespace, token.body(), Proof::Bearer(token.signature()), peer)?;
    if only_users && topics.is_none() {
        let detail = format!("capability {} was shown without encryption", caller.principal());
        let error = Code::MqttCapabilityExposed.error(detail);
        tracing::warn!(target: "connections", protocol = "mqtt", code = error.code().id(), "{}", error.detail());
        return Err(error);
    }
    identity.has_shown(hosted, &caller)?;
    Ok((hosted.within_limits(&served, &caller), caller, topics))
}

/// The user of MQTT with this name and password: the namespace, the topics of the user, and a capability.
fn user_of(hosted: &Hosted, name: &str, password: &[u8]) -> Result<(Served, Allowed, Token)> {
    for served in hosted.served().iter() {
        if !served.has_mqtt_users_at_hand() {
            return Err(Code::JournalBlocked.error("the users of MQTT cannot be read now"));
        }
        if let Some((allowed, token)) = served.mqtt_user(name, password)? {
            return Ok((served.clone(), allowed, token));
        }
    }
    Err(refused())
}

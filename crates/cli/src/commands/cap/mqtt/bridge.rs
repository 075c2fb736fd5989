//! `millrace mqtt bridge`: exchanges messages with another broker.

use crate::{
    args::{Global, MqttBridgeArgs},
    feed,
    out::Out,
    place, report,
    report::Outcome,
};
use millrace_client::{credentials::SYSTEM, secure::tls};
use millrace_gateway::{Bridge, BridgeEvent, Broker, SOCKET};
use millrace_node::{Code, Name, Namespace, Result, is_local, secrets::FunctionSecrets};
use serde_json::json;
use std::{
    fs::File,
    io::{self, Read},
    net::IpAddr,
    path::Path,
};
use zeroize::Zeroizing;

/// More of a password is not read.
const PASSWORD_MAX_BYTES: u64 = 64 << 10;

pub fn run(args: &MqttBridgeArgs, global: &Global, out: &mut Out) -> Outcome {
    let namespace = place::open(global)?;
    let password = password(args, &namespace)?;
    let remote = broker(&args.broker, global)?;
    if password.is_some() && !args.plain && is_readable(&remote) {
        let detail = format!("the password for {} would be sent without TLS: use mqtts://, or --plain", remote.name());
        return Err(Code::ValueInvalid.error(detail).into());
    }
    let id = namespace.journal().namespace().to_string();
    let bridge = Bridge {
        remote,
        local: Broker::Socket(namespace.dir().join(SOCKET)),
        is_v5: !args.v3,
        client: args.client_id.clone().unwrap_or_else(|| format!("millrace-{}", id.get(..8).unwrap_or(&id))),
        user: args.user.clone(),
        password,
        incoming: args.incoming.clone(),
        outgoing: args.outgoing.clone(),
        local_prefix: args.local_prefix.clone(),
        remote_prefix: args.remote_prefix.clone(),
    };
    drop(namespace);
    bridge.check()?;
    let name = bridge.remote.name();
    Ok(bridge.run(|event| match event {
        BridgeEvent::Connected(remote, local) if out.json() => {
            let _ = out.object(&json!({ "event": "connected", "remote_session": remote, "local_session": local }));
            let _ = out.flush();
        }
        BridgeEvent::Connected(remote, _) => {
            let session = if remote { "its session continues" } else { "it begins a session" };
            feed::stderr(&format!("connected to {name}; {session} there\n"));
        }
        BridgeEvent::Lost(error) => report::say(&error.within("the bridge tries again"), out.json()),
    })?)
}

/// Whether others could read what is sent to a broker.
fn is_readable(broker: &Broker) -> bool {
    let Broker::Remote { host, tls: None, .. } = broker else { return false };
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host != "localhost" && !address.is_ok_and(is_local)
}

fn broker(text: &str, global: &Global) -> Result<Broker> {
    let invalid = || {
        let shown: String = text.chars().take(80).flat_map(char::escape_debug).collect();
        Code::ValueInvalid.error(format!("'{shown}' is not a broker; write mqtt://HOST[:PORT] or mqtts://HOST[:PORT]"))
    };
    let (scheme, rest) = text.split_once("://").ok_or_else(invalid)?;
    let (usual, tls) = match scheme {
        "mqtt" => (1883, None),
        "mqtts" => {
            let authorities = global.ca.as_deref().unwrap_or(Path::new(SYSTEM));
            (8883, Some(tls::to_server(authorities, b"mqtt")?))
        }
        _ => return Err(invalid()),
    };
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| invalid())?),
        _ => (rest, usual),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() || host.contains(['/', '@']) {
        return Err(invalid());
    }
    Ok(Broker::Remote { host: host.to_owned(), port, tls })
}

fn password(args: &MqttBridgeArgs, namespace: &Namespace) -> Result<Option<Zeroizing<Vec<u8>>>> {
    if let Some(name) = &args.secret {
        let name: Name = name.parse()?;
        let found = FunctionSecrets::of(namespace.dir()).value(&name)?;
        let missing = || Code::FunctionSecretNotFound.error(format!("no secret '{name}'"));
        return found.ok_or_else(missing).map(Some);
    }
    let Some(file) = &args.password_file else { return Ok(None) };
    let mut value = Zeroizing::new(Vec::new());
    let read = match file.to_str() {
        Some("-") => io::stdin().take(PASSWORD_MAX_BYTES).read_to_end(&mut value),
        _ => File::open(file).and_then(|file| file.take(PASSWORD_MAX_BYTES).read_to_end(&mut value)),
    };
    read.map_err(|error| Code::ValueInvalid.error(format!("cannot read '{}': {error}", file.display())))?;
    while value.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        value.pop();
    }
    Ok(Some(value))
}

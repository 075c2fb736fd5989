//! `millrace dashboard`: prints or opens the address of the dashboard, which every host serves. For a host elsewhere it serves the pages
//! here, and forwards their requests.

mod browser;

use super::cap;
use crate::{
    args::{DashboardArgs, Global},
    out::Out,
    place::{self, Place, Target, remote},
    report::Outcome,
};
use millrace_client::Options;
use millrace_gateway::{Forward, SOCKET};
use millrace_node::{Code, Result, is_local};
use serde::Deserialize;
use serde_json::json;
use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::net::UnixStream,
    time::Duration,
};

/// How long the host may take for a code, and how long its answer may be.
const PATIENCE: Duration = Duration::from_secs(10);
const ANSWER_MAX_BYTES: u64 = 64 << 10;

/// The parts of a host's status that the address needs.
#[derive(Deserialize)]
struct Status {
    name: String,
    #[serde(default)]
    addresses: Vec<SocketAddr>,
}

pub fn run(args: &DashboardArgs, global: &Global, out: &mut Out) -> Outcome {
    let (target, _) = Target::find(global)?;
    let token = args.capability.as_deref().map(cap::read).transpose()?;
    if let (Target::Peer(peer, ca), false) = (&target, args.direct || args.code) {
        let options = Options { ca: ca.clone(), ..remote::options() };
        let place = millrace_client::Place::Tcp(peer.clone());
        if token.is_none() {
            // What is wrong with the stored capability is said here, not in the browser.
            Place::at(&target)?;
        }
        if let Some(pages) = Forward::open(&place, &options, token.clone())? {
            // A browser does not send what follows `#`, and the page removes it from the address.
            let url = format!("http://{}/ui/{}#key={}", pages.address()?, peer.namespace, pages.key());
            return serve(pages, &url, args, out);
        }
    }
    let status: Status = Place::at(&target)?.connect()?.document("status")?;
    let (scheme, authority) = match &target {
        Target::Peer(peer, _) => (scheme(&peer.host), peer.authority()),
        _ => ("http", local(&status.addresses)?.to_string()),
    };
    let page = format!("{scheme}://{authority}/ui/{}", status.name);
    // A browser does not send what follows `#`, and the page removes it from the address.
    let mut url = token.map_or_else(|| page.clone(), |token| format!("{page}#cap={}", *token.to_text()));
    if args.code {
        url = format!("{page}#code={}", code(&target, &status.name, global)?);
    }
    let opened = if args.open { Some(browser::open(&url)?) } else { None };
    if out.json() {
        out.object(&json!({ "url": url, "opened": args.open }))?;
    } else {
        out.line(&url)?;
    }
    if let Some(opened) = opened {
        out.flush()?;
        opened.finish();
    }
    Ok(())
}

/// Serves the pages of a host elsewhere until the process ends.
fn serve(pages: Forward, url: &str, args: &DashboardArgs, out: &mut Out) -> Outcome {
    if out.json() {
        out.object(&json!({ "event": "serving", "url": url, "opened": args.open }))?;
    } else {
        out.line(url)?;
        out.line("serving the dashboard until this command ends; press Ctrl-C to stop")?;
    }
    out.flush()?;
    // The file for the browser is removed while the pages are served.
    let _opened = if args.open { Some(browser::open(url)?) } else { None };
    Ok(pages.serve()?)
}

/// A code of the host, which it gives to its user at the socket of the namespace.
fn code(target: &Target, name: &str, global: &Global) -> Result<String> {
    #[derive(Deserialize)]
    struct Login {
        code: String,
    }
    let socket = match target {
        Target::Directory(_) => place::open(global)?.dir().join(SOCKET),
        Target::Socket(path) => path.clone(),
        Target::Peer(..) => {
            return Err(
                Code::DashboardUnreachable.error("a host gives codes only on its own machine; use --capability")
            );
        }
    };
    let failed = |why: String| Code::DashboardUnreachable.error(format!("the host gave no code: {why}"));
    let asked = || {
        let mut stream = UnixStream::connect(&socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let head =
            "HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: 2";
        stream.write_all(format!("POST /v1/namespaces/{name}/login {head}\r\n\r\n{{}}").as_bytes())?;
        let mut answer = String::new();
        stream.take(ANSWER_MAX_BYTES).read_to_string(&mut answer)?;
        Ok::<_, io::Error>(answer)
    };
    let answer = asked().map_err(|error| failed(error.to_string()))?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let login: Login = serde_json::from_str(body).map_err(|_| failed(body.to_owned()))?;
    Ok(login.code)
}

/// Beyond this machine a host speaks TLS only.
fn scheme(host: &str) -> &'static str {
    let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(is_local);
    if is_here { "http" } else { "https" }
}

/// The address at which a browser of this machine reaches a host that listens on these.
fn local(addresses: &[SocketAddr]) -> Result<SocketAddr> {
    let here = |address: &SocketAddr| {
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        is_local(ip).then(|| SocketAddr::new(ip, address.port()))
    };
    addresses.iter().find_map(here).ok_or_else(|| {
        let listens: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let listens = if listens.is_empty() { "no TCP address".into() } else { listens.join(", ") };
        Code::DashboardUnreachable.error(format!("the host listens on {listens}, and not at a loopback address"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_here_uses_a_loopback_address() {
        let local = |addresses: &[&str]| {
            let addresses: Vec<SocketAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
            local(&addresses).ok().map(|address| address.to_string())
        };
        assert_eq!(local(&["0.0.0.0:7070"]).as_deref(), Some("127.0.0.1:7070"));
        assert_eq!(local(&["[::]:7070"]).as_deref(), Some("[::1]:7070"));
        assert_eq!(local(&["192.0.2.1:7", "127.0.0.1:8"]).as_deref(), Some("127.0.0.1:8"));
        assert_eq!((local(&[]), local(&["192.0.2.1:7"])), (None, None));
        assert_eq!((scheme("localhost"), scheme("::1"), scheme("farm.example")), ("http", "http", "https"));
    }
}

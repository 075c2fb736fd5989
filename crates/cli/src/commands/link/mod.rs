//! `millrace relay …`, `millrace outbox …` and `millrace device …`

mod ask;
mod attach;
mod device;
mod dump;
mod line;
mod outbox;
mod port;
mod provision;
mod relay;
mod send;
mod update;
mod verify;

pub use device::{not_run, run as device};
pub use outbox::run as outbox;
pub use relay::run as relay;

use crate::{
    out::{Out, Style, Table},
    place::docs::LinkDoc,
    report::Outcome,
    show,
};
use millrace_node::{Code, Result};
use serde_json::json;
use std::{
    thread,
    time::{Duration, Instant},
};

/// How long a command waits for the namespace at a new address, and how often it looks.
const MEET: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Whether `--host` is an address of a host.
fn check_host(host: &str) -> Result<()> {
    let is_port =
        |port: &str| port.bytes().all(|digit| digit.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_name = |name: &str| !name.is_empty() && !name.contains(['/', ' ']);
    if host.rsplit_once(':').is_some_and(|(name, port)| is_name(name) && is_port(port)) {
        return Ok(());
    }
    Err(Code::ValueInvalid.error(format!("--host is '{host}', and must be HOST:PORT, such as 192.168.1.7:7070")))
}

/// Columns that both kinds of link are listed with.
fn table(first: &'static str) -> Table {
    match first {
        "peer" => Table::new(&[first, "from", "to", "state", "sent>", "dead>", "behind>", "bytes>", "last contact"]),
        _ => Table::new(&[first, "from", "to", "state", "done>", "behind>", "bytes>", "last contact"]),
    }
}

fn row(view: &LinkDoc, out: &Out) -> Vec<String> {
    let state = match &*view.state {
        "stopped" => out.styled(Style::Bad, &view.state),
        "waiting" => out.styled(Style::Warn, &view.state),
        state => state.to_owned(),
    };
    let contact = contact(view);
    let mut row = vec![view.name.clone(), view.from.clone(), view.to.clone(), state];
    match &*view.kind {
        "outbox" => row.extend([view.sent, view.dead].map(show::grouped)),
        _ => row.push(show::grouped(view.acked)),
    }
    row.extend([view.lag_records, view.lag_bytes].map(show::grouped));
    row.push(contact);
    row
}

/// When the other side answered last; this is not kept across hosts.
fn contact(view: &LinkDoc) -> String {
    let last = view.last_contact.as_deref().and_then(show::moment);
    last.map_or("none yet".into(), |at| show::ago(at, show::now_us()))
}

/// The problems of links.
fn troubles<'a>(views: impl IntoIterator<Item = &'a LinkDoc>, out: &mut Out) -> Outcome {
    for view in views {
        let Some(error) = &view.error else { continue };
        let said = match &view.code {
            Some(code) => format!("{}: {code}: {error}", view.name),
            None => format!("{}: {error}", view.name),
        };
        let said = out.styled(Style::Bad, &said);
        out.line(said)?;
        if let Some(remedy) = &view.remedy {
            out.line(format!("  {remedy}"))?;
        }
    }
    Ok(())
}

/// A link got another address: waits a moment for the namespace there, and reports what was found.
fn moved(set: LinkDoc, look: impl Fn() -> Result<LinkDoc>, out: &mut Out) -> Outcome {
    let (mut link, began) = (set, Instant::now());
    while link.moving && !matches!(&*link.state, "stopped" | "no-host") && began.elapsed() < MEET {
        thread::sleep(LOOK_EVERY);
        link = look()?;
    }
    if link.state == "stopped" {
        let code = link.code.as_deref().and_then(Code::from_id).unwrap_or(Code::LinkStopped);
        return Err(code.error(link.error.unwrap_or_default()).into());
    }
    if out.json() {
        return Ok(out.object(&json!(link))?);
    }
    let (kind, name, from, to) = (&link.kind, &link.name, &link.from, &link.to);
    out.line(format!("{kind} {name} now goes from {from} to {to}"))?;
    if link.moving {
        out.line(
            "nobody has answered there yet; before anything is sent, the host checks that it is the same namespace",
        )?;
    }
    Ok(())
}

/// Prints links as a table with what is wrong below, or one object per line.
fn list(first: &'static str, nothing: &str, views: &[LinkDoc], out: &mut Out) -> Outcome {
    let mut table = table(first);
    for view in views {
        if out.json() {
            out.object(&json!(view))?;
        } else {
            table.row(row(view, out));
        }
    }
    if out.json() {
        return Ok(());
    }
    if table.is_empty() {
        return Ok(out.line(nothing)?);
    }
    out.table(&table)?;
    troubles(views, out)
}

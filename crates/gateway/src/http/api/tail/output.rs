//! What a run prints: as a document, or as server-sent events while it comes.
//!
//! ```text
//!   output   {"from", "text", "next"}: a part of the output
//!   end      {"run", "state"}: the run has ended, and so has its output
//! ```

use super::{Source, live::event, respond};
use crate::{
    documents::{Query, invalid, shown},
    http::{response::Response, session::Session},
    memory::Reservation,
};
use millrace_documents::OutputDoc;
use millrace_wire::{Code, Result};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How often a run is asked for more.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Serialize)]
struct Printed<'d> {
    from: u64,
    text: &'d str,
    next: u64,
}

#[derive(Serialize)]
struct OutputEnd<'d> {
    run: &'d str,
    state: &'d str,
}

struct Printing {
    session: Session,
    namespace: String,
    run: String,
    from: u64,
    next: Instant,
    is_over: bool,
}

/// The output so far; with `follow`, what comes as well.
pub(in crate::http) async fn show(session: &Session, namespace: &str, run: &str, query: &str) -> Result<Response> {
    let mut asked = Query::parse(query)?;
    let follow = match asked.take("follow").as_deref() {
        None | Some("false" | "0") => false,
        Some("true" | "1") => true,
        Some(other) => return Err(invalid(format!("parameter 'follow' is '{}', not true or false", shown(other)))),
    };
    let from = asked.number("from", 0, u64::MAX)?.unwrap_or(0);
    asked.finish()?;
    let mut printing = Printing {
        session: session.clone(),
        namespace: namespace.to_owned(),
        run: run.to_owned(),
        from,
        next: Instant::now(),
        is_over: false,
    };
    if !follow {
        return session.document(namespace, &printing.path(), &format!("from={from}")).await;
    }
    // Whether there is such a run, and the caller may see it, is said at once.
    let doc = printing.ask(u64::MAX).await?;
    printing.run = doc.run;
    Ok(respond(session, printing))
}

impl Printing {
    fn path(&self) -> String {
        format!("runs/{}/output", utf8_percent_encode(&self.run, NON_ALPHANUMERIC))
    }

    async fn ask(&self, from: u64) -> Result<OutputDoc> {
        let access = self.session.access(&self.namespace)?;
        let path = format!("{}?from={from}", self.path());
        let text = crate::documents::show(&self.session.hosted, &access, &path).await?;
        serde_json::from_str(&text).map_err(|error| Code::HostInternal.error(error.to_string()))
    }
}

impl Source for Printing {
    fn cursor(&self) -> Option<String> {
        None
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    async fn grown(&mut self) -> Result<()> {
        sleep_until(self.next).await;
        Ok(())
    }

    async fn read(&mut self) -> Result<(Vec<u8>, Option<Reservation>)> {
        let doc = self.ask(self.from).await?;
        let mut text = Vec::new();
        if !doc.text.is_empty() {
            let printed = Printed { from: doc.from, text: &doc.text, next: doc.next };
            event(&mut text, "output", &printed)?;
        } else {
            self.next = Instant::now() + LOOK;
        }
        if doc.ended {
            let end = OutputEnd { run: &doc.run, state: &doc.state };
            event(&mut text, "end", &end)?;
            self.is_over = true;
        }
        self.from = doc.next;
        let reserved = Reservation::of(text.len())?;
        Ok((text, reserved))
    }
}

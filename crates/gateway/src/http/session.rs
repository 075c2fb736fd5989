//! The requests of one connection: each is checked, routed and answered.

use super::{
    api::{append, logs, manage, metrics, pages, range, record, repairs, runs, tail, topics},
    capabilities,
    connection::{cors, guard, watched::Activity},
    login, mounts,
    response::{self, Response},
    route::Place,
    tables,
};
use crate::{
    Hosted,
    admission::Identity,
    documents,
    memory::{self, Account, Reservation},
};
use futures_util::FutureExt;
use hyper::{
    HeaderMap, Method, Request, StatusCode,
    body::{Body, Incoming},
    header::AUTHORIZATION,
};
use millrace_node::{
    Access, Caller, Served,
    token::{Token, Way},
};
use millrace_wire::{Code, Result};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::Ordering},
};
use tokio::sync::watch;

/// A connection, as its requests see it.
#[derive(Clone)]
pub(super) struct Session {
    identity: Identity,
    /// The capability in the request.
    bearer: Option<Token>,
    /// The name of the listener, if it is for one protocol or mount.
    only: Option<&'static str>,
    pub hosted: Arc<Hosted>,
    pub activity: Arc<Activity>,
    /// Becomes true when the host stops.
    pub stopped: watch::Receiver<bool>,
}

/// The capability of a request, if it has one. An invalid one is not quoted, because it may be another secret.
fn bearer(headers: &HeaderMap) -> Result<Option<Token>> {
    let wrong =
        || Code::CapabilityMalformed.error("the header 'authorization' does not have the form 'Bearer CAPABILITY'");
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return if headers.contains_key(AUTHORIZATION) { Err(wrong()) } else { Ok(None) };
    };
    let (scheme, token) = value.to_str().ok().and_then(|value| value.split_once(' ')).ok_or_else(wrong)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(wrong());
    }
    token.trim().parse().map(Some).map_err(|_| wrong())
}

impl Session {
    pub fn new(
        identity: Identity,
        only: Option<&'static str>,
        hosted: Arc<Hosted>,
        activity: Arc<Activity>,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        Self { identity, bearer: None, only, hosted, activity, stopped }
    }

    /// Whose memory the connection itself uses.
    pub fn account(&self) -> Account {
        self.identity.account()
    }

    /// The namespace of this name.
    pub fn access(&self, namespace: &str) -> Result<Access> {
        if namespace.is_empty() {
            return Err(Code::NamespaceNotServed.error("the path does not name a namespace"));
        }
        match &self.bearer {
            Some(token) => self.hosted.access_of_bearer(&self.identity, namespace, token),
            None => self.hosted.access_of(&self.identity, namespace),
        }
    }

    /// The namespace of this name for its owner, by a code that the owner had got.
    pub fn owners_access(&self, namespace: &str) -> Result<Access> {
        let served = self.hosted.served().iter().find(|served| **served.name() == *namespace);
        let unknown = || Code::NamespaceNotServed.error("this host does not serve the namespace");
        Ok(served.ok_or_else(unknown)?.access(&Arc::new(Caller::owner(self.identity.peer))))
    }

    /// Whether the caller may see every namespace.
    fn sees_all(&self) -> bool {
        let observes = |served: &Served| self.access(served.name()).is_ok_and(|access| access.sees_all());
        self.hosted.served().iter().all(observes)
    }

    /// Answers a request; a failure is an answer as well. Its memory is counted for the caller.
    pub fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Response> {
        self.account().within(self.answered(request))
    }

    /// The same for one of several requests of a connection, with the memory that it takes besides the connection.
    pub fn answer_stream(&self, request: Request<Incoming>) -> impl Future<Output = (Response, Option<Reservation>)> {
        self.account().within(async move {
            let body = request.body().size_hint().upper().and_then(|bytes| usize::try_from(bytes).ok());
            let mut room = match memory::for_stream(body.unwrap_or(usize::MAX)) {
                Ok(room) => room,
                Err(error) => return (response::failure(&error), None),
            };
            let answer = self.answered(request).await;
            room.charge_to(&memory::current());
            room.is_answered();
            (answer, Some(room))
        })
    }

    async fn answered(&self, request: Request<Incoming>) -> Response {
        let exchange = self.activity.begin();
        if let Some(unknown) = &self.identity.unknown {
            unknown.is_heard();
        }
        let counters = &self.hosted.counters;
        counters.http_requests.fetch_add(1, Ordering::Relaxed);
        self.hosted.worked(1);
        let has_body = !request.body().is_end_stream();
        let outcome = match AssertUnwindSafe(self.dispatch(request)).catch_unwind().await {
            Ok(outcome) => outcome,
            Err(_) => Err(Code::HostInternal.error("the request could not be answered")),
        };
        let counted = outcome.and_then(|response| {
            let (head, content) = response.into_parts();
            Ok(Response::from_parts(head, content.counted()?))
        });
        let response = counted.unwrap_or_else(|error| {
            tracing::debug!(target: "requests", protocol = "http", code = error.code().id(), "refused: {}", error.detail());
            response::failure(&error)
        });
        self.activity.answers(response.body().length());
        if response.status().is_client_error() || response.status().is_server_error() {
            counters.failures.fetch_add(1, Ordering::Relaxed);
            if has_body {
                self.activity.refuses_early();
            }
        }
        response.map(|content| content.of_exchange(exchange))
    }

    async fn dispatch(&self, request: Request<Incoming>) -> Result<Response> {
        let page = cors::of(request.headers(), &self.hosted.cors_origins);
        guard::check(&request, self.identity.peer.way == Way::TlsProof, page.is_some())?;
        let bearer = bearer(request.headers())?;
        let Some(origin) = page else {
            if bearer.is_some() {
                return Box::pin(Self { bearer, ..self.clone() }.routed(request)).await;
            }
            return self.routed(request).await;
        };
        let mut response = match cors::is_preflight(&request) {
            true => cors::preflight(),
            // Whose connection it is says nothing about a page.
            false => {
                let identity = Identity { owner: None, ..self.identity.clone() };
                let answered = Box::pin(Self { identity, bearer, ..self.clone() }.routed(request)).await;
                answered.unwrap_or_else(|error| response::failure(&error))
            }
        };
        cors::allow(response.headers_mut(), origin);
        Ok(response)
    }

    async fn routed(&self, request: Request<Incoming>) -> Result<Response> {
        if let Some(mount) = mounts::of(&request, self.only) {
            return Box::pin(mount.answered(self, request)).await;
        }
        let uri = request.uri().clone();
        let place = Place::of(uri.path())?;
        if !place.allows(request.method()) {
            return Ok(response::method_refused(place.allowed()));
        }
        if self.hosted.is_draining() && !place.tells_of_host() {
            return Err(Code::HostStopping.error("the host is stopping"));
        }
        if let Place::Records { namespace, log } = &place
            && request.method() == Method::POST
        {
            return append::one(self, namespace, log, request).await;
        }
        let of_topic = match &place {
            Place::Topic { namespace, .. }
            | Place::TopicRecords { namespace, .. }
            | Place::TopicRecord { namespace, .. }
            | Place::TopicTail { namespace, .. } => Some(namespace.to_string()),
            _ => None,
        };
        // Apart from the above, what is waited for is kept elsewhere, so that an append's future stays small.
        let answered = Box::pin(self.other(place, request)).await;
        answered.map_err(|error| match of_topic.and_then(|namespace| self.access(&namespace).ok()) {
            Some(access) => access.hinted_topic(error),
            None => error,
        })
    }

    async fn other(&self, place: Place<'_>, request: Request<Incoming>) -> Result<Response> {
        let query = request.uri().query().unwrap_or("");
        match place {
            Place::Root => pages::root(query),
            Place::OpenApi => pages::openapi(query),
            Place::Health => pages::health(&self.hosted, self.sees_all(), query),
            Place::Ready => pages::ready(&self.hosted, self.sees_all(), query),
            Place::Metrics => metrics::text(self, query).await,
            Place::Namespaces => self.namespaces(query).await,
            Place::Batch { namespace } => append::batch(self, &namespace, request).await,
            Place::Records { namespace, log } => range::read(self, &namespace, &log, &request).await,
            Place::Record { namespace, log, which } => record::read(self, &namespace, &log, &which, &request).await,
            Place::Tail { namespace, log } => tail::log::follow(self, &namespace, &log, &request).await,
            Place::Live { namespace } => tail::live::follow(self, &namespace, query).await,
            Place::Log { namespace, log } if request.method() == Method::PUT => {
                logs::create(self, &namespace, &log, request).await
            }
            Place::Log { namespace, log } if request.method() == Method::PATCH => {
                logs::change(self, &namespace, &log, request).await
            }
            Place::Log { namespace, log } if request.method() == Method::DELETE => {
                logs::remove(self, &namespace, &log, query).await
            }
            Place::Log { namespace, log } => {
                let log = utf8_percent_encode(&log, NON_ALPHANUMERIC);
                self.document(&namespace, &format!("logs/{log}"), query).await
            }
            Place::OfLog { namespace, log, part } => {
                let log = utf8_percent_encode(&log, NON_ALPHANUMERIC);
                self.document(&namespace, &format!("logs/{log}/{part}"), query).await
            }
            Place::Table { namespace, table } if request.method() == Method::PUT => {
                tables::create(self, &namespace, &table, request).await
            }
            Place::Table { namespace, table } => tables::scan(self, &namespace, &table, &request).await,
            Place::TableKey { namespace, table, key } => tables::key(self, &namespace, &table, key, request).await,
            Place::Topic { namespace, topic } if request.method() == Method::PUT => {
                topics::create(self, &namespace, &topic, request).await
            }
            Place::Topic { namespace, topic } if request.method() == Method::DELETE => {
                topics::remove(self, &namespace, &topic, query).await
            }
            Place::Topic { namespace, topic } => {
                let topic = utf8_percent_encode(&topic, NON_ALPHANUMERIC);
                self.document(&namespace, &format!("topics/{topic}"), query).await
            }
            Place::TopicRecords { namespace, topic } if request.method() == Method::POST => {
                topics::publish(self, &namespace, &topic, request).await
            }
            Place::TopicRecords { namespace, topic } => topics::range(self, &namespace, &topic, &request).await,
            Place::TopicRecord { namespace, topic, which } => {
                topics::record(self, &namespace, &topic, &which, &request).await
            }
            Place::TopicTail { namespace, topic } => tail::topic::follow(self, &namespace, &topic, &request).await,
            Place::Repairs { namespace } if request.method() == Method::POST => {
                repairs::ask(self, &namespace, request).await
            }
            Place::Function { namespace, function } if request.method() == Method::POST => {
                runs::call(self, &namespace, &function, request).await
            }
            Place::Function { namespace, function } => {
                let function = utf8_percent_encode(&function, NON_ALPHANUMERIC);
                self.document(&namespace, &format!("functions/{function}"), query).await
            }
            Place::Firmware { namespace, device } if request.method() == Method::PUT => {
                manage::update_device(self, &namespace, &device, request).await
            }
            Place::Firmware { namespace, device } => {
                let device = utf8_percent_encode(&device, NON_ALPHANUMERIC);
                self.document(&namespace, &format!("devices/{device}/firmware"), query).await
            }
            Place::Output { namespace, run } => tail::output::show(self, &namespace, &run, query).await,
            Place::Cancel { namespace, run } => runs::cancel(self, &namespace, &run, query).await,
            Place::Capabilities { namespace } if request.method() == Method::POST => {
                capabilities::ask(self, &namespace, request).await
            }
            Place::Capabilities { namespace } => capabilities::list(self, &namespace, query).await,
            Place::Login { namespace } => login::ask(self, &namespace, request).await,
            Place::Manage { namespace } => manage::ask(self, &namespace, request).await,
            Place::Repairs { namespace } => self.document(&namespace, "repairs", query).await,
            Place::Document { namespace, path } => self.document(&namespace, path, query).await,
        }
    }

    pub async fn document(&self, namespace: &str, path: &str, query: &str) -> Result<Response> {
        let access = self.access(namespace)?;
        let path = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        Ok(response::json(StatusCode::OK, documents::show(&self.hosted, &access, &path).await?))
    }

    async fn namespaces(&self, query: &str) -> Result<Response> {
        documents::Query::parse(query)?.finish()?;
        let mut list = String::from("{\"namespaces\":[");
        // Only those that the caller may see, without a hint that there are others.
        let access = |served: &Served| self.access(served.name()).ok().filter(Access::sees_all);
        let accesses: Vec<Access> = self.hosted.served().iter().filter_map(access).collect();
        for (n, held) in documents::namespaces(&self.hosted, &accesses).into_iter().enumerate() {
            list += if n == 0 { "" } else { "," };
            list += &held.await?;
        }
        Ok(response::json(StatusCode::OK, list + "]}"))
    }
}

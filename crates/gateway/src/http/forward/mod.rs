//! The dashboard of a host elsewhere, at a loopback address of this machine: the pages are those of this program, and requests for data go
//! to the host over TLS, with the capability that this user has for it. So neither the host's certificate nor the capability is in the
//! browser.
//!
//! ```text
//!   browser ── HTTP, loopback, a key ──> here ── TLS with a pinned key, capability ──> host
//! ```
//!
//! Only this user connects, according to the kernel. Functions of hosts on this machine have the same user, so each request also needs the
//! key of the link, which is another one in each process. Requests of pages of other sites are refused as a host refuses them.

mod upstream;

use super::{
    api::dashboard,
    connection::{body, guard},
    login::is_same,
    response::{self, Content, Response},
};
use crate::{documents::unknown, memory::Account};
use futures_util::{StreamExt, stream::FuturesUnordered};
use hyper::{
    HeaderMap, Method, Request,
    body::Incoming,
    header::{AUTHORIZATION, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use millrace_client::{
    Options, Place,
    loopback::{Holder, Loopback},
};
use millrace_node::{is_owner, secrets::random_id, token::Token};
use millrace_wire::{Code, Defence, Error, Hex, Result};
use std::{
    convert::Infallible,
    future::Future,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::{io::AsyncWriteExt, net::TcpStream, time::sleep};
use upstream::Upstream;

/// Most connections of the browser that are served at once; others wait.
const CONNECTIONS_MAX: usize = 64;
/// The longest body that is forwarded: a record, or records in JSON.
const BODY_MAX_BYTES: usize = 32 << 20;
/// After a failure to accept a connection, for example without file descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest request line and headers.
const HEAD_MAX_BYTES: usize = 16 << 10;

/// What the pages of a host elsewhere are served with.
pub struct Forward {
    listener: TcpListener,
    key: String,
    upstream: Arc<Upstream>,
}

impl Forward {
    /// Listens, and connects to the host once. Nothing if the host is not reached by TLS.
    ///
    /// # Errors
    ///
    /// The host does not answer or has another key, or no port is free.
    pub fn open(place: &Place, options: &Options, capability: Option<Token>) -> Result<Option<Forward>> {
        let runtime = runtime()?;
        let Some(upstream) = runtime.block_on(Upstream::connect(place, options, capability))? else { return Ok(None) };
        let failed = |error: std::io::Error| Code::ListenFailed.error(format!("cannot listen at 127.0.0.1: {error}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let key = (0..4).map(|_| Ok(Hex(&random_id()?).to_string())).collect::<Result<String>>()?;
        Ok(Some(Forward { listener, key, upstream: Arc::new(upstream) }))
    }

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// The system does not say.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(|error| Code::ListenFailed.error(error.to_string()))
    }

    /// The key that each request for data needs.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Serves until the process ends.
    ///
    /// # Errors
    ///
    /// The system does not let it.
    pub fn serve(self) -> Result<()> {
        runtime()?.block_on(self.accept())
    }

    async fn accept(self) -> Result<()> {
        let failed = |error: std::io::Error| Code::ListenFailed.error(error.to_string());
        let listener = tokio::net::TcpListener::from_std(self.listener).map_err(failed)?;
        let pages = Rc::new(Pages { key: self.key, upstream: self.upstream });
        let mut kernel = Loopback::new().ok();
        let mut connections: FuturesUnordered<Pin<Box<dyn Future<Output = ()>>>> = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                    Ok((stream, _)) => match check_user(kernel.as_mut(), &stream) {
                        Ok(()) => connections.push(Box::pin(pages.clone().serve(stream))),
                        Err(error) => connections.push(Box::pin(refuse(stream, error))),
                    },
                    Err(_) => sleep(PAUSE).await,
                },
                Some(()) = connections.next(), if !connections.is_empty() => {}
            }
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| Code::ListenFailed.error(format!("the event loop could not be started: {error}")))
}

/// Refuses another user of this machine. Where the kernel does not say who it is, the key decides.
fn check_user(kernel: Option<&mut Loopback>, stream: &TcpStream) -> Result<()> {
    let holder =
        kernel.map_or(Holder::Unknown, |kernel| kernel.holder(|| Ok((stream.peer_addr()?, stream.local_addr()?))));
    let refused = |what: String| Err(Code::LoopbackRefused.error(what));
    match holder {
        Holder::User(user)
            if !is_owner(user, rustix::process::geteuid().as_raw()) && Defence::LoopbackUser.stands() =>
        {
            refused(format!("the connection belongs to user {user}, who did not start this command"))
        }
        Holder::Nobody => refused("the connection is closed".into()),
        Holder::User(_) | Holder::Unknown => Ok(()),
    }
}

async fn refuse(mut stream: TcpStream, error: Error) {
    // Whoever it is may be gone.
    let _ = stream.write_all(&response::raw_refusal(&error)).await;
    let _ = stream.shutdown().await;
}

struct Pages {
    key: String,
    upstream: Arc<Upstream>,
}

impl Pages {
    async fn serve(self: Rc<Self>, stream: TcpStream) {
        let service = service_fn(|request| {
            let pages = self.clone();
            async move {
                let answer = pages.answer(request).await;
                Ok::<_, Infallible>(answer.unwrap_or_else(|error| response::failure(&error)))
            }
        });
        // The browser may break the connection at any time.
        let _ = http1::Builder::new()
            .max_buf_size(HEAD_MAX_BYTES * 4)
            .serve_connection(TokioIo::new(stream), service)
            .await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response> {
        guard::check(&request, false, false)?;
        let path = request.uri().path();
        let is_page = matches!(*request.method(), Method::GET | Method::HEAD);
        match dashboard::file_of(path) {
            Some(file) if is_page => return Ok(dashboard::show(file)),
            None if path == "/" && is_page => return dashboard::redirect(),
            Some(_) => return Ok(response::method_refused("GET, HEAD")),
            None if !path.starts_with("/v1/") && path != "/openapi.json" => return Err(unknown(path)),
            None => {}
        }
        if !self.is_known(request.headers()) && Defence::PageKey.stands() {
            return Err(Code::PageKeyWrong.error("the request does not have the key of this page"));
        }
        let (head, body) = request.into_parts();
        let body = Account::Owner.within(body::read(body, BODY_MAX_BYTES)).await?;
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
        let mut response = self.upstream.ask(&head.method, target, &head.headers, body.bytes.clone()).await?;
        // Whatever it is, it never is a page of this address.
        let headers = response.headers_mut();
        headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
        headers.insert("content-security-policy", HeaderValue::from_static("default-src 'none'; sandbox"));
        headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
        Ok(response)
    }

    /// Whether a request has the key of the link, as `Bearer KEY`.
    fn is_known(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        shown.is_some_and(|shown| is_same(shown, &self.key))
    }
}

/// A body that comes in parts.
fn streamed(parts: impl futures_util::Stream<Item = hyper::body::Bytes> + Send + 'static) -> Content {
    Content::stream(parts)
}

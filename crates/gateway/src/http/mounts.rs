//! The services within HTTP, each with requests of its own: those below a path, those with a header, or all that come to a listener.
//!
//! To add one, write a `pub(in crate::http) static MOUNT: Mount` in a module of its own, and add it to [`MOUNTS`]. It gets a namespace only by
//! [`Session::access`], which checks the caller.

use super::{
    api::dashboard,
    response::{self, Response},
    session::Session,
};
use futures_util::future::BoxFuture;
use hyper::{
    HeaderMap, Request, Uri,
    body::{Body, Incoming},
};
use millrace_wire::{Code, Result};
use tokio::sync::{Semaphore, SemaphorePermit};

/// In the order in which they are asked. All other requests are for the API, which is no mount, so that an append needs no allocation more;
/// each of its requests has limits of its own.
static MOUNTS: [&Mount; 1] = [&dashboard::MOUNT];

/// A service within HTTP.
pub(in crate::http) struct Mount {
    /// Its name in errors. If it is one of the listeners of [`PROTOCOL`](super::PROTOCOL), an address may be for this mount only.
    pub name: &'static str,
    /// Whether a request is for it.
    pub claims: fn(&Uri, &HeaderMap) -> bool,
    /// The methods that it answers, as in the header `Allow`.
    pub methods: &'static str,
    /// The longest body of a request. One of unknown length is limited where it is read, except that there is none if this is 0.
    pub body_max_bytes: u64,
    /// Requests that the host answers at once, until the last byte of each answer.
    pub at_once: Semaphore,
    /// Answers a request within these limits.
    pub answer: for<'s> fn(&'s Session, Request<Incoming>) -> BoxFuture<'s, Result<Response>>,
}

/// The mount of a request; none for the API. All requests to a listener with the name of a mount are for that mount.
pub(super) fn of<B>(request: &Request<B>, only: Option<&'static str>) -> Option<&'static Mount> {
    let named = only.and_then(|only| MOUNTS.into_iter().find(|mount| mount.name == only));
    named.or_else(|| MOUNTS.into_iter().find(|mount| (mount.claims)(request.uri(), request.headers())))
}

impl Mount {
    /// Answers a request, if it keeps the limits.
    pub async fn answered(&'static self, session: &Session, request: Request<Incoming>) -> Result<Response> {
        if !response::allows(self.methods, request.method()) {
            return Ok(response::method_refused(self.methods));
        }
        if session.hosted.is_draining() {
            return Err(Code::HostStopping.error("the host is stopping"));
        }
        let permit = self.admit(request.body())?;
        Ok((self.answer)(session, request).await?.map(|content| content.holding(permit)))
    }

    /// Counts a request with this body among those that are answered.
    fn admit(&'static self, body: &impl Body) -> Result<SemaphorePermit<'static>> {
        let is_too_long = match self.body_max_bytes {
            0 => !body.is_end_stream(),
            max => body.size_hint().lower() > max,
        };
        if is_too_long {
            let detail = format!("the body of a request to '{}' has at most {} bytes", self.name, self.body_max_bytes);
            return Err(Code::HttpBodyTooLong.error(detail));
        }
        let busy = |_| Code::MountBusy.error(format!("'{}' answers as many requests as it does at once", self.name));
        self.at_once.try_acquire().map_err(busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::body::{Bytes, Frame, SizeHint};
    use std::{
        pin::Pin,
        task::{Context, Poll},
    };

    static SMALL: Mount = Mount {
        name: "small",
        claims: |_, _| true,
        methods: "PUT",
        body_max_bytes: 10,
        at_once: Semaphore::const_new(2),
        answer: |_, _| Box::pin(async { Err(Code::HttpPathUnknown.error("nothing")) }),
    };

    /// A body that announces at least this many bytes.
    struct Announced(u64);

    impl Body for Announced {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, std::convert::Infallible>>> {
            Poll::Ready(None)
        }

        fn is_end_stream(&self) -> bool {
            self.0 == 0
        }

        fn size_hint(&self) -> SizeHint {
            let mut hint = SizeHint::new();
            hint.set_lower(self.0);
            hint
        }
    }

    #[test]
    fn a_request_is_for_the_first_mount_that_claims_it_and_otherwise_for_the_api() {
        let name = |path: &str, accept: &str| {
            let request = Request::builder().uri(path).header("accept", accept).body(()).unwrap();
            of(&request, None).map(|mount| mount.name)
        };
        for path in ["/ui", "/ui/", "/ui/farm/logs/raw"] {
            assert_eq!(name(path, "*/*"), Some("dashboard"), "{path}");
        }
        assert_eq!((name("/", "text/html"), name("/", "application/json")), (Some("dashboard"), None));
        let request = Request::builder().uri("/v1").body(()).unwrap();
        assert_eq!(of(&request, Some("dashboard")).map(|mount| mount.name), Some("dashboard"));
        assert!(of(&request, Some("http")).is_none());
        for path in ["/v1/namespaces", "/uix", "/healthz", "/v1/ui", "*"] {
            assert_eq!(name(path, "text/html"), None, "{path}");
        }
    }

    #[test]
    fn a_mount_has_limits_of_its_own() {
        let admitted = |bytes| SMALL.admit(&Announced(bytes)).map_err(|error| error.code());
        assert_eq!(admitted(11).unwrap_err(), Code::HttpBodyTooLong);
        let (first, second) = (admitted(10).unwrap(), admitted(0).unwrap());
        assert_eq!(admitted(0).unwrap_err(), Code::MountBusy);
        drop(first);
        let _third = admitted(1).unwrap();
        drop(second);
        let none = |bytes| dashboard::MOUNT.admit(&Announced(bytes)).map_err(|error| error.code());
        assert_eq!((none(1).unwrap_err(), none(0).is_ok()), (Code::HttpBodyTooLong, true));
    }
}

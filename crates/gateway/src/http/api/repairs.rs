//! Requests about repairs. The state of a repair is a document.

use super::json;
use crate::{
    documents,
    http::{
        response::{self, Response},
        session::Session,
    },
};
use hyper::{Request, StatusCode, body::Incoming};
use millrace_wire::Result;

/// Most bytes of the corrections of one request.
const BODY_MAX_BYTES: usize = 24 << 20;

/// Opens, runs, applies, takes back or gives up a repair, as the body says: the repair as it is then.
pub(in crate::http) async fn ask(session: &Session, namespace: &str, request: Request<Incoming>) -> Result<Response> {
    let (access, text, _reserved) = json(session, namespace, request, BODY_MAX_BYTES).await?;
    let repair = documents::ask_repair(&session.hosted, access, text).await?;
    Ok(response::json(StatusCode::OK, repair))
}

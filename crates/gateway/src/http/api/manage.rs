//! Changes of functions, relays and logs, and updates of devices. Code of functions is not sent over HTTP: a deployment and its files belong to
//! one connection, and an HTTP client does not control which connection it uses.

use super::{check_encoding, json};
use crate::{
    documents::{self, Query, invalid},
    http::{
        connection::body,
        response::{self, Response},
        session::Session,
    },
};
use base64::prelude::{BASE64_STANDARD, Engine};
use hyper::{Request, StatusCode, body::Incoming};
use millrace_node::{
    Access,
    devices::updates::{IMAGE_MAX_BYTES, PART_BYTES, Stage, UpdateDoc},
    manage::Order,
};
use millrace_wire::{Code, Result};

/// Most bytes of what is asked.
const BODY_MAX_BYTES: usize = 1 << 20;

/// Does what the body asks.
pub(in crate::http) async fn ask(session: &Session, namespace: &str, request: Request<Incoming>) -> Result<Response> {
    let (access, text, _reserved) = json(session, namespace, request, BODY_MAX_BYTES).await?;
    let managed = documents::manage(&session.hosted, access, text, None).await?;
    Ok(response::json(StatusCode::OK, managed))
}

/// Sends new firmware to a device: the body is the image, and the answer says how far the update is. If the same image is sent again, that
/// goes on.
pub(in crate::http) async fn update_device(
    session: &Session,
    namespace: &str,
    device: &str,
    request: Request<Incoming>,
) -> Result<Response> {
    let (head, body) = request.into_parts();
    let mut query = Query::parse(head.uri.query().unwrap_or(""))?;
    let version = query.take("version").ok_or_else(|| invalid("parameter 'version' is missing"))?;
    query.finish()?;
    check_encoding(&head.headers)?;
    let access = session.access(namespace)?;
    let image = body::read(body, IMAGE_MAX_BYTES as usize).await?; // 16 MiB
    let sha256 = documents::hash_of_image(image.bytes.clone()).await?;
    let size = image.bytes.len() as u64;
    let begin = Order::BeginUpdate { device: device.to_owned(), size, sha256, version };
    let mut update = step(session, &access, &begin).await?;
    while update.state == Stage::Storing {
        let from = (update.stored as usize).min(image.bytes.len());
        let part = image.bytes.slice(from..image.bytes.len().min(from + PART_BYTES));
        let (device, base64) = (device.to_owned(), BASE64_STANDARD.encode(part));
        let add = Order::AddFirmware { device, update: update.number, offset: from as u64, base64 };
        update = step(session, &access, &add).await?;
    }
    let text = serde_json::to_string(&update).map_err(|error| Code::HostInternal.error(error.to_string()))?;
    Ok(response::json(StatusCode::OK, text))
}

async fn step(session: &Session, access: &Access, order: &Order) -> Result<UpdateDoc> {
    let managed = documents::manage(&session.hosted, access.clone(), order.text(), None).await?;
    serde_json::from_str(&managed).map_err(|error| Code::HostInternal.error(error.to_string()))
}

//! Bodies of requests: read completely, because a record is appended as a whole, and limited: in bytes per body, in bytes in all, and in
//! time.

use crate::{
    memory::{Reservation, SMALL_BYTES},
    patience,
};
use hyper::body::{Body, Bytes, Frame, Incoming};
use millrace_wire::{Code, Error, Result};
use std::{future::poll_fn, pin::Pin};
use tokio::time::{Instant, timeout, timeout_at};

/// A body that was read.
pub(in crate::http) struct Data {
    pub bytes: Bytes,
    _reserved: Option<Reservation>,
}

impl AsRef<[u8]> for Data {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a body of at most `bytes_max` bytes.
pub(in crate::http) async fn read(mut body: Incoming, bytes_max: usize) -> Result<Data> {
    let announced = body.size_hint().lower();
    if announced > bytes_max as u64 {
        return Err(too_long(bytes_max));
    }
    let Some(first) = part(&mut body, None).await? else {
        return Ok(Data { bytes: Bytes::new(), _reserved: None });
    };
    // Most bodies come in one part, which then is the record.
    if body.is_end_stream() && first.len() <= bytes_max {
        return Ok(Data { _reserved: Reservation::of(first.len())?, bytes: first });
    }
    let deadline = Instant::now() + patience::body();
    let mut reserved = Reservation::default();
    let mut whole = Vec::new();
    let mut next = Some(first);
    while let Some(bytes) = next {
        let length = whole.len() + bytes.len();
        if length > bytes_max {
            return Err(too_long(bytes_max));
        }
        if length > whole.capacity() {
            // Memory is taken as bytes come, not as they are announced.
            let capacity = length.max(whole.capacity() * 2).min(length.max(announced as usize).max(SMALL_BYTES));
            if capacity > SMALL_BYTES {
                reserved.grow(capacity)?;
            }
            whole.reserve_exact(capacity - whole.len());
        }
        whole.extend_from_slice(&bytes);
        next = part(&mut body, Some(deadline)).await?;
    }
    Ok(Data { bytes: whole.into(), _reserved: Some(reserved) })
}

/// The next bytes of a body.
async fn part(body: &mut Incoming, deadline: Option<Instant>) -> Result<Option<Bytes>> {
    loop {
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx));
        let frame = timeout(patience::client(), frame);
        let frame = match deadline {
            None => frame.await,
            Some(deadline) => timeout_at(deadline, frame).await.and_then(|frame| frame),
        };
        let slow = |_| Code::HttpRequestSlow.error("the request's body did not arrive in time");
        match frame.map_err(slow)?.map(|frame| frame.map(Frame::into_data)) {
            None => return Ok(None),
            Some(Ok(Ok(bytes))) if bytes.is_empty() => {}
            Some(Ok(Ok(bytes))) => return Ok(Some(bytes)),
            Some(Ok(Err(_trailers))) => {}
            Some(Err(error)) => return Err(Code::HttpMalformed.error(format!("the body cannot be read: {error}"))),
        }
    }
}

fn too_long(bytes_max: usize) -> Error {
    Code::RecordTooLong.error(format!("the body has more than {bytes_max} bytes"))
}

//! The channel as a host accepts it: two messages, then the client's first record, which shows that it has its capability.

use super::stream::Stream;
use crate::{
    Hosted,
    admission::{Identity, known, refused},
};
use millrace_client::secure::{ChannelStream, Records};
use millrace_node::{Served, secrets::random_id};
use millrace_security::{
    channel::{Accepted, First, Nonce, Offered, RECORD_MAX_BYTES, refusal},
    token::{Peer, Way},
};
use millrace_wire::Result;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn broken(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn nonce() -> Result<Nonce> {
    let mut nonce = Nonce::default();
    let (first, second) = nonce.split_at_mut(8);
    first.copy_from_slice(&random_id()?);
    second.copy_from_slice(&random_id()?);
    Ok(nonce)
}

/// The namespace whose keys the offered capability is of, and what follows from them.
fn recover(hosted: &Hosted, offered: &Offered<'_>) -> Result<(Served, Accepted)> {
    let nonce = nonce()?;
    for served in hosted.served() {
        let Ok(keys) = served.keys().current() else { continue };
        if let Ok(accepted) = offered.accept(&*keys, &nonce, RECORD_MAX_BYTES) {
            return Ok((served.clone(), accepted));
        }
    }
    Err(refused())
}

/// Opens the channel that a client begins, whose first bytes are `received`; `None` if the client was refused.
pub(super) async fn accept(
    hosted: &Hosted,
    mut stream: Stream,
    first: &[u8],
    identity: Identity,
) -> io::Result<Option<(ChannelStream<Stream>, Identity)>> {
    // Also through the Unix socket, where `millrace device attach` brings the devices of serial lines.
    let identity = Identity { peer: Peer { way: Way::Channel, ..identity.peer }, ..identity };
    let mut received = first.to_vec();
    let (served, mut accepted) = loop {
        if let Some((offered, used)) = Offered::read(&received).map_err(broken)? {
            let Ok(recovered) = recover(hosted, &offered) else {
                hosted.served().iter().for_each(|it| it.capability_refused(offered.body(), identity.peer.address));
                stream.write_all(&refusal()).await?;
                return Ok(None);
            };
            received.drain(..used);
            break recovered;
        }
        more(&mut stream, &mut received).await?;
    };
    stream.write_all(accepted.m2()).await?;
    loop {
        let keys = served.keys().current().map_err(broken)?;
        match accepted.receive(&*keys, identity.peer, &received).map_err(broken)? {
            First::Incomplete(again) => accepted = again,
            First::Open { caller, channel, exporter, plain, used } => {
                let caller = known(&served, caller).map_err(broken)?;
                identity.has_shown(hosted, &caller).map_err(broken)?;
                let records = Records::new(channel, plain, received.split_off(used));
                let (holder, exporter) = (Some((served, caller)), Some(exporter));
                let identity = Identity { owner: None, not_owner: None, holder, exporter, ..identity };
                return Ok(Some((ChannelStream::new(stream, records), identity)));
            }
        }
        more(&mut stream, &mut received).await?;
    }
}

async fn more(stream: &mut Stream, received: &mut Vec<u8>) -> io::Result<()> {
    match stream.read_buf(received).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

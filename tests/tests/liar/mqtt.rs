//! Clients of MQTT: one that publishes, whose acknowledgements tell that its messages are there, and one that gets what others append.

use crate::{clients::Asked, reported::Fact, world::Pen};
use millrace_node::{Code, Result};
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const LOG: &str = "raw";

fn broken(error: std::io::Error) -> millrace_node::Error {
    Code::ConnectionLost.error(error.to_string())
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    assert!(body.len() < 128);
    [&[first, body.len() as u8], body].concat()
}

/// The first byte of a packet, and its body.
async fn read(stream: &mut TcpStream) -> Result<(u8, Vec<u8>)> {
    let first = stream.read_u8().await.map_err(broken)?;
    let (mut length, mut shift) = (0, 0);
    loop {
        let byte = stream.read_u8().await.map_err(broken)?;
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.map_err(broken)?;
    Ok((first, body))
}

async fn connect(host: SocketAddr, client: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(host).await.map_err(broken)?;
    let body = [text("MQTT"), vec![4, 2, 0, 0], text(client)].concat();
    stream.write_all(&packet(0x10, &body)).await.map_err(broken)?;
    match read(&mut stream).await? {
        (0x20, body) if body[1] == 0 => Ok(stream),
        _ => Err(Code::ConnectionLost.error("refused")),
    }
}

/// What a client does: it publishes at each quality that is acknowledged, and subscribes to what others append meanwhile.
pub fn ask(asked: &mut Asked, pen: &Pen, host: SocketAddr) {
    for qos in [1u8, 2] {
        let data = format!("{}-{qos}", pen.name_of("mqtt"));
        let (client, message) = (data.clone(), data.clone());
        let publish = async move {
            let mut stream = connect(host, &client).await?;
            let body = [text(LOG), vec![0, 7], message.into_bytes()].concat();
            stream.write_all(&packet(0x30 | qos << 1, &body)).await.map_err(broken)?;
            read(&mut stream).await
        };
        asked.ask(publish, move |answer| match answer {
            Ok((0x40 | 0x50, _)) => vec![Fact::Kept { log: LOG.into(), data: data.into_bytes() }],
            _ => Vec::new(),
        });
    }
    let client = pen.name_of("mqtt-sub");
    let follow = async move {
        let mut stream = connect(host, &client).await?;
        stream.write_all(&packet(0x82, &[vec![0, 1], text(LOG), vec![0]].concat())).await.map_err(broken)?;
        loop {
            let (first, body) = read(&mut stream).await?;
            match first >> 4 {
                3 => return Ok(body[2 + LOG.len()..].to_vec()),
                // In calm times something has to come.
                9 => {
                    let message = [text(LOG), client.clone().into_bytes()].concat();
                    stream.write_all(&packet(0x30, &message)).await.map_err(broken)?;
                }
                _ => {}
            }
        }
    };
    asked.ask(follow, |data| match data {
        Ok(data) => vec![Fact::Kept { log: LOG.into(), data }],
        Err(_) => Vec::new(),
    });
}

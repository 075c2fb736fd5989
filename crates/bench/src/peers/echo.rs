//! A bare echo over TCP: the cost of the network stack and of two wake-ups, which every server has.

use crate::{Outcome, children::Helper, measure::Samples};
use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// An echo server in a process of its own, and a connection to it.
pub struct Echo {
    port: u16,
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
    _server: Helper,
}

impl Echo {
    /// Requests and answers of this size.
    pub fn start(request_bytes: usize, answer_bytes: usize) -> Outcome<Self> {
        let mut server = Helper::start("echo-tcp", &[&request_bytes.to_string(), &answer_bytes.to_string()])?;
        let port = server.line()?.parse()?;
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self { port, stream, request: vec![7; request_bytes], answer: vec![0; answer_bytes], _server: server })
    }

    /// One request after the other, each a pace after the previous one.
    pub fn paced(&mut self, count: u64, pace: Duration, samples: &mut Samples) -> Outcome<()> {
        for _ in 0..count {
            std::thread::sleep(pace);
            let start = Instant::now();
            self.stream.write_all(&self.request)?;
            self.stream.read_exact(&mut self.answer)?;
            samples.record(start.elapsed());
        }
        Ok(())
    }

    /// Round trips per second over this number of connections, with one outstanding request on each, from one thread.
    pub async fn together(&self, connections: usize, time: Duration) -> Outcome<f64> {
        let start = Instant::now();
        let mut tasks = Vec::new();
        for _ in 0..connections {
            let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await?;
            stream.set_nodelay(true)?;
            let (request, mut answer) = (self.request.clone(), self.answer.clone());
            tasks.push(tokio::spawn(async move {
                let mut count = 0u64;
                while start.elapsed() < time {
                    stream.write_all(&request).await?;
                    stream.read_exact(&mut answer).await?;
                    count += 1;
                }
                Ok::<_, std::io::Error>(count)
            }));
        }
        let mut count = 0;
        for task in tasks {
            count += task.await??;
        }
        Ok(count as f64 / start.elapsed().as_secs_f64())
    }
}

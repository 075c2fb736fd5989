//! The link between the hosts: carries connections from one port to another until it is cut.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

const WHOLE: u8 = 0;
const CUT: u8 = 1;
const SILENT: u8 = 2;
const OVER: u8 = 3;

pub struct Link {
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    to: SocketAddr,
    state: AtomicU8,
    open: Mutex<Vec<TcpStream>>,
}

impl Link {
    pub fn start(to: SocketAddr) -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        listener.set_nonblocking(true).unwrap();
        let shared = Arc::new(Shared { to, state: AtomicU8::new(WHOLE), open: Mutex::default() });
        let of_thread = shared.clone();
        thread::spawn(move || {
            while of_thread.state.load(SeqCst) != OVER {
                match listener.accept() {
                    Ok((stream, _)) => of_thread.accepted(stream),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(2)),
                    Err(error) => panic!("{error}"),
                }
            }
        });
        Link { port, shared }
    }

    /// Breaks every connection, and lets none be made.
    pub fn cut(&self) {
        self.shared.state.store(CUT, SeqCst);
        for stream in self.shared.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Nothing passes any more, and nobody is told.
    pub fn silence(&self) {
        self.shared.state.store(SILENT, SeqCst);
    }

    /// Puts it back.
    pub fn mend(&self) {
        self.shared.state.store(WHOLE, SeqCst);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.cut();
        self.shared.state.store(OVER, SeqCst);
    }
}

impl Shared {
    fn accepted(self: &Arc<Self>, from: TcpStream) {
        if self.state.load(SeqCst) != WHOLE {
            return; // closed at once
        }
        from.set_nonblocking(false).unwrap();
        let Ok(to) = TcpStream::connect_timeout(&self.to, Duration::from_secs(3)) else { return };
        let mut open = self.open.lock().unwrap();
        open.retain(|stream| stream.peer_addr().is_ok());
        for (from, to) in [(&from, &to), (&to, &from)] {
            let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { return };
            open.extend(from.try_clone());
            let shared = self.clone();
            thread::spawn(move || shared.carry(from, to));
        }
    }

    fn carry(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = [0; 16 << 10];
        while let Ok(read) = from.read(&mut buffer)
            && read > 0
        {
            while self.state.load(SeqCst) == SILENT {
                thread::sleep(Duration::from_millis(2));
            }
            if to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}

//! `trace` of a host.

use super::{json, measured};
use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    thread,
};

/// Forwards one connection to this port; what the client sent comes when it ends.
fn heard(port: u16) -> (u16, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let between = listener.local_addr().unwrap().port();
    let (tell, heard) = mpsc::channel();
    thread::spawn(move || {
        let client = listener.accept().unwrap().0;
        let host = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut answers, mut to_client) = (host.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || io::copy(&mut answers, &mut to_client));
        let (mut sent, mut client, mut host) = (Vec::new(), client, host);
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = client.read(&mut bytes) {
            sent.extend_from_slice(&bytes[..count]);
            host.write_all(&bytes[..count]).unwrap();
        }
        tell.send(sent).unwrap();
    });
    (between, heard)
}

/// One request, whatever the journal has.
#[test]
fn a_host_is_asked_for_a_tree_and_not_for_its_journal() {
    let place = measured("");
    let host = place.serve_tcp(["--name", "farm"]);
    let address = format!("mr://127.0.0.1:{}/farm", host.port());
    let forms: [&[&str]; 4] = [&["raw@4"], &["mean@4", "--up"], &["raw"], &["raw@4", "--limit", "2"]];
    for form in forms {
        let asked = [&["trace"], form].concat();
        let far = [&["-n", &address], &*asked].concat();
        assert_eq!(json(&place, &far), json(&place, &asked), "{form:?}");
        assert_eq!(place.run(&far).ok().text(), place.run(&asked).ok().text(), "{form:?}");
    }
    let by_address = format!("{address}/raw@4");
    assert_eq!(json(&place, &["trace", &by_address]), json(&place, &["trace", "raw@4"]));
    let (between, heard) = heard(host.port());
    json(&place, &["-n", &format!("mr://127.0.0.1:{between}/farm"), "trace", "raw@4"]);
    let asked = String::from_utf8_lossy(&heard.recv().expect("a connection")).into_owned();
    assert!(asked.contains("trace/raw@4?") && !asked.contains("journal"), "{asked}");
    for (target, code, exit) in
        [("raw@9", "MR2105", 1), ("none@1", "MR2101", 1), ("raw@0", "MR1003", 2), ("1-0-1", "MR7001", 1)]
    {
        place.run(["-n", &address, "trace", target]).fails(code, exit);
    }
}

//! Open files: a shell's soft limit is no limit of the program, and the table
//! that holds them is as large as it will be before it is needed.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use crate::simulated::Simulated;

/// Connections side by side; more than the soft limit set here.
const CONNECTIONS: usize = 200;

#[test]
fn a_simulator_serves_more_connections_than_the_soft_limit_allows() {
    let script = "ulimit -Sn 100; exec \"$0\" sim --port 0";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_pcload")]);
    let simulator = Simulated::start(&mut shell);

    #[cfg(target_os = "linux")]
    {
        let status = format!("/proc/{}/status", simulator.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let slots = status
            .lines()
            .find_map(|line| line.strip_prefix("FDSize:"))
            .unwrap()
            .trim()
            .parse::<usize>()
            .unwrap();
        assert!(slots >= CONNECTIONS, "room for {slots} descriptors");
    }

    let mut open = Vec::new();
    for at in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(simulator.authority()).unwrap();
        stream
            .write_all(b"GET /version HTTP/1.1\r\nHost: sim\r\n\r\n")
            .unwrap();
        let mut head = [0; 15];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200 OK", "connection {at}");
        open.push(stream);
    }
}

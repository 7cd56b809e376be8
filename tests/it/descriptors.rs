//! Open files: a shell's soft limit is no limit of the program, and the table
//! that holds them is as large as it will be before it is needed.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

#[cfg(target_os = "linux")]
use pcload::sim::Config;

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
    has_room_for_all(simulator.child.id());

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

/// The table holds as many as the simulator will accept, or as the limit allows;
/// the limit is the hard one.
#[cfg(target_os = "linux")]
fn has_room_for_all(process: u32) {
    let numbers = |file: &str, name: &str| -> Vec<usize> {
        let text = std::fs::read_to_string(format!("/proc/{process}/{file}")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let words = line.unwrap().split_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    };
    let limits = numbers("limits", "Max open files");
    assert_eq!(limits[0], limits[1], "the soft limit is the hard one");
    let slots = numbers("status", "FDSize:")[0];
    let wanted = Config::default().connections_max.min(limits[0]);
    assert!(slots >= wanted, "room for {slots} of {wanted} descriptors");
}

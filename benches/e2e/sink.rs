//! A client that takes what a server sends and looks at nothing but the ends of
//! answers. A server's own pace is measured with it: the load driver, which
//! stamps and reads each of 100,000 chunks a second, fills its core at that rate
//! and is in the server's way.
//!
//! It reads in turns of a millisecond, as a client that is busy does, so that
//! hardly a write of the server has to wake it.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// Pause between two turns.
const TURN: Duration = Duration::from_millis(1);
/// The longest load.
const LONGEST: Duration = Duration::from_secs(300);
/// What ends an answer in chunks.
const END: &[u8] = b"0\r\n\r\n";

/// The load: `connections` that each send `request` `rounds` times, one answer
/// after the other, and begin spread over `spread`.
#[derive(Clone, Copy)]
pub struct Load<'a> {
    /// `host:port`.
    pub authority: &'a str,
    /// Head and body.
    pub request: &'a [u8],
    pub connections: usize,
    pub rounds: usize,
    pub spread: Duration,
    /// Whether it pauses between turns; not where the server never does.
    pub pauses: bool,
}

struct Connection {
    stream: TcpStream,
    left: usize,
    /// The last bytes that came.
    tail: Vec<u8>,
}

/// Sends the load and returns when the last answer has ended.
pub fn take(load: Load<'_>) {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("epoll");
    let mut connections: Vec<Connection> = Vec::with_capacity(load.connections);
    let mut buffer = vec![0; 1 << 18];
    let mut ready = vec![EpollEvent::empty(); 1_024];
    let mut ended = 0;
    let begin = Instant::now();
    while ended < load.connections {
        assert!(begin.elapsed() < LONGEST, "the server does not end");
        while connections.len() < load.connections
            && begin.elapsed() >= start(load, connections.len())
        {
            let connection = open(load, &epoll, connections.len());
            connections.push(connection);
        }
        let count = epoll
            .wait(&mut ready, EpollTimeout::ZERO)
            .expect("events of sockets");
        for event in &ready[..count] {
            let at = usize::try_from(event.data()).expect("an index");
            let connection = &mut connections[at];
            if !ends(connection, &mut buffer) {
                continue;
            }
            connection.left -= 1;
            if connection.left > 0 {
                send(&mut connection.stream, load.request);
            } else {
                epoll.delete(connection.stream.as_fd()).expect("a member");
                ended += 1;
            }
        }
        if load.pauses && count < ready.len() {
            std::thread::sleep(TURN);
        }
    }
}

/// When the connection of this number begins.
fn start(load: Load<'_>, number: usize) -> Duration {
    load.spread.mul_f64(number as f64 / load.connections as f64)
}

fn open(load: Load<'_>, epoll: &Epoll, number: usize) -> Connection {
    let mut stream = TcpStream::connect(load.authority).expect("the server listens");
    stream.set_nodelay(true).expect("a TCP socket");
    let event = EpollEvent::new(EpollFlags::EPOLLIN, number as u64);
    epoll.add(stream.as_fd(), event).expect("a new member");
    send(&mut stream, load.request);
    stream.set_nonblocking(true).expect("a socket");
    Connection {
        stream,
        left: load.rounds,
        tail: Vec::new(),
    }
}

/// A request is far smaller than a socket's buffer, which is empty here.
fn send(stream: &mut TcpStream, request: &[u8]) {
    stream.write_all(request).expect("room for a request");
}

/// Reads what is there; true when it ends an answer.
fn ends(connection: &mut Connection, buffer: &mut [u8]) -> bool {
    let count = match connection.stream.read(buffer) {
        Ok(0) => panic!("the server closed a connection"),
        Ok(count) => count,
        Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
        Err(error) => panic!("the server broke a connection: {error}"),
    };
    let tail = &mut connection.tail;
    tail.extend_from_slice(&buffer[count - count.min(END.len())..count]);
    let surplus = tail.len() - tail.len().min(END.len());
    tail.drain(..surplus);
    let ended = tail == END;
    if ended {
        tail.clear();
    }
    ended
}

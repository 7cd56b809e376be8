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
/// after the other.
#[derive(Clone, Copy)]
pub struct Load<'a> {
    /// `host:port`.
    pub authority: &'a str,
    /// Head and body.
    pub request: &'a [u8],
    pub connections: usize,
    pub rounds: usize,
    /// Evenly spread starts: each connection sends once in this time, at its own
    /// moment of it. Zero: all begin at once and go on when an answer ends.
    ///
    /// Streams that go on by themselves drift together: what a server sends late
    /// together ends together, and begins together again. Then no server holds
    /// its pace, and the load is not the one that was asked for.
    pub period: Duration,
    /// Whether it pauses between turns; not where the server never does.
    pub pauses: bool,
}

struct Connection {
    stream: TcpStream,
    /// Requests still to be sent.
    left: usize,
    /// Whether an answer is under way.
    busy: bool,
    /// The last bytes that came.
    tail: Vec<u8>,
}

/// Sends the load and returns when the last answer has ended.
pub fn take(load: Load<'_>) {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("epoll");
    let mut connections: Vec<Connection> = Vec::with_capacity(load.connections);
    let mut buffer = vec![0; 1 << 18];
    let mut ready = vec![EpollEvent::empty(); 1_024];
    let (mut sent, mut ended) = (0, 0);
    let total = load.connections * load.rounds;
    let begin = Instant::now();
    while ended < total {
        let elapsed = begin.elapsed();
        assert!(elapsed < LONGEST, "the server does not end");
        while sent < total && elapsed >= start(load, sent) {
            let at = sent % load.connections;
            if at == connections.len() {
                connections.push(open(load, &epoll, at));
            }
            let connection = &mut connections[at];
            if connection.busy || connection.left == 0 {
                break;
            }
            connection.send(load.request);
            sent += 1;
        }
        let count = epoll
            .wait(&mut ready, EpollTimeout::ZERO)
            .expect("events of sockets");
        for event in &ready[..count] {
            let at = usize::try_from(event.data()).expect("an index");
            let connection = &mut connections[at];
            if connection.ends(&mut buffer) {
                ended += 1;
                if load.period.is_zero() && connection.left > 0 {
                    connection.send(load.request);
                    sent += 1;
                }
            }
        }
        if load.pauses && count < ready.len() {
            std::thread::sleep(TURN);
        }
    }
}

/// When the request of this number is to be sent.
fn start(load: Load<'_>, number: usize) -> Duration {
    load.period.mul_f64(number as f64 / load.connections as f64)
}

fn open(load: Load<'_>, epoll: &Epoll, number: usize) -> Connection {
    let stream = TcpStream::connect(load.authority).expect("the server listens");
    stream.set_nodelay(true).expect("a TCP socket");
    stream.set_nonblocking(true).expect("a socket");
    let event = EpollEvent::new(EpollFlags::EPOLLIN, number as u64);
    epoll.add(stream.as_fd(), event).expect("a new member");
    Connection {
        stream,
        left: load.rounds,
        busy: false,
        tail: Vec::new(),
    }
}

impl Connection {
    /// A request is far smaller than a socket's buffer, which is empty here.
    fn send(&mut self, request: &[u8]) {
        self.stream.write_all(request).expect("room for a request");
        self.left -= 1;
        self.busy = true;
    }

    /// Reads what is there; true when it ends an answer.
    fn ends(&mut self, buffer: &mut [u8]) -> bool {
        let count = match self.stream.read(buffer) {
            Ok(0) => panic!("the server closed a connection"),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => panic!("the server broke a connection: {error}"),
        };
        self.tail
            .extend_from_slice(&buffer[count - count.min(END.len())..count]);
        let surplus = self.tail.len().saturating_sub(END.len());
        self.tail.drain(..surplus);
        if self.tail != END {
            return false;
        }
        self.tail.clear();
        self.busy = false;
        true
    }
}

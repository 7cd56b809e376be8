//! Records to disk as requests end: one JSON line each, written and flushed by
//! a thread of its own, away from the threads that read streams. A full disk
//! does not stop the load; it is reported at the end.
#![allow(clippy::disallowed_methods, reason = "edge: a thread and a file")]

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use crate::measure::RequestRecord;

/// Where records go: usually `records.jsonl`, opened for appending.
pub type Sink = Box<dyn Write + Send>;

/// Takes records and keeps them. The queue is bounded by the requests of the
/// run.
#[derive(Debug)]
pub(super) struct Journal {
    queue: Sender<RequestRecord>,
    writer: JoinHandle<(Vec<RequestRecord>, io::Result<()>)>,
}

impl Journal {
    /// Starts the writing thread.
    pub(super) fn start(sink: Option<Sink>) -> io::Result<Self> {
        let (queue, records) = channel();
        let writer = thread::Builder::new()
            .name("pcload-journal".to_owned())
            .spawn(move || write_all(&records, sink))?;
        Ok(Self { queue, writer })
    }

    /// Takes one record.
    pub(super) fn push(&self, record: RequestRecord) {
        self.queue
            .send(record)
            .expect("the writer lives as long as the queue");
    }

    /// All records in the order in which they came, and how writing went.
    pub(super) fn finish(self) -> (Vec<RequestRecord>, io::Result<()>) {
        drop(self.queue);
        match self.writer.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn write_all(
    queue: &Receiver<RequestRecord>,
    sink: Option<Sink>,
) -> (Vec<RequestRecord>, io::Result<()>) {
    let mut kept = Vec::new();
    let mut sink = sink.map(io::BufWriter::new);
    let mut written = Ok(());
    // A burst of records is flushed once, when the queue runs empty.
    while let Ok(first) = queue.recv() {
        let burst = std::iter::once(first).chain(queue.try_iter());
        for record in burst {
            if let (Some(sink), Ok(())) = (&mut sink, &written) {
                written = write_line(sink, &record);
            }
            kept.push(record);
        }
        if let (Some(sink), Ok(())) = (&mut sink, &written) {
            written = sink.flush();
        }
    }
    (kept, written)
}

fn write_line(sink: &mut impl Write, record: &RequestRecord) -> io::Result<()> {
    serde_json::to_writer(&mut *sink, record)?;
    sink.write_all(b"\n")
}

//! The log file of a command: `log/<run_id>.<command>.log`, one line an event,
//! `[time] [pcload.<module>] [LEVEL] message`. Its volume is bounded, and no
//! credential gets into it.
#![allow(
    clippy::disallowed_methods,
    reason = "edge: writes the log file and stamps its lines"
)]

use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Where a log file ends.
pub const LOG_BYTES_MAX: u64 = 64 << 20;

/// A layer that writes every event it is given as one line.
pub struct LogLayer {
    sink: Mutex<Sink>,
    clean: Clean,
}

/// Takes the credentials that are known by then out of a line.
pub type Clean = fn(&str) -> String;

struct Sink {
    out: Box<dyn Write + Send>,
    bytes_left: u64,
}

impl LogLayer {
    /// A log in a file, which is emptied first; its directory is made. Where
    /// that fails the log goes to stderr, and the error is returned beside it.
    pub fn open(path: Option<&Path>, clean: Clean) -> (Self, Option<io::Error>) {
        match path.map(create) {
            Some(Ok(file)) => (Self::new(Box::new(file), clean), None),
            Some(Err(error)) => (Self::new(Box::new(io::stderr()), clean), Some(error)),
            None => (Self::new(Box::new(io::stderr()), clean), None),
        }
    }

    /// A log into any writer.
    pub fn new(out: Box<dyn Write + Send>, clean: Clean) -> Self {
        let sink = Sink {
            out,
            bytes_left: LOG_BYTES_MAX,
        };
        Self {
            sink: Mutex::new(sink),
            clean,
        }
    }

    fn line(&self, event: &Event<'_>) -> String {
        let metadata = event.metadata();
        let time = jiff::ZonedDateTime::now().strftime("%Y-%m-%d %H:%M:%S,%3f");
        let module = metadata.target().replace("::", ".");
        let mut line = format!("[{time}] [{module}] [{}] ", metadata.level());
        let mut fields = Fields::default();
        event.record(&mut fields);
        line.push_str(&fields.message);
        line.push_str(&fields.others);
        let mut line = (self.clean)(&line).replace(['\n', '\r'], " ");
        line.push('\n');
        line
    }
}

fn create(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    File::create(path)
}

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let line = self.line(event);
        let mut sink = self
            .sink
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        sink.write(&line);
    }
}

impl Sink {
    /// A log that cannot be written must not end the work it speaks of, so
    /// errors are dropped here.
    fn write(&mut self, line: &str) {
        let bytes = line.len() as u64;
        if bytes <= self.bytes_left {
            self.bytes_left -= bytes;
            self.out.write_all(line.as_bytes()).ok();
        } else if self.bytes_left > 0 {
            self.bytes_left = 0;
            self.out
                .write_all(b"the log has reached its limit and ends here\n")
                .ok();
        }
    }
}

/// The message and the other fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    others: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.others, " {}={value:?}", field.name())
        };
        written.expect("writing to a string does not fail");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(clean: Clean, work: impl FnOnce()) -> String {
        let memory = Memory::default();
        let layer = LogLayer::new(Box::new(memory.clone()), clean);
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, work);
        let bytes = memory.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn an_event_is_one_line_with_time_module_and_level() {
        let text = logged(str::to_owned, || {
            tracing::warn!(target: "pcload::drive::native", rank = 3, name = "a", "two\nlines");
        });
        let (time, rest) = text.split_once("] ").unwrap();
        assert_eq!(time.len(), "[2026-08-25 12:34:56,789".len());
        assert_eq!(
            rest,
            "[pcload.drive.native] [WARN] two lines rank=3 name=a\n"
        );
    }

    #[test]
    fn no_credential_gets_into_the_log() {
        let clean: Clean = |line| line.replace("sk-0123", "[redacted]");
        let text = logged(clean, || tracing::trace!(key = "sk-0123", "Bearer sk-0123"));
        assert!(
            text.ends_with("Bearer [redacted] key=[redacted]\n"),
            "{text}"
        );
    }

    #[test]
    fn the_volume_is_bounded() {
        let memory = Memory::default();
        let mut sink = Sink {
            out: Box::new(memory.clone()),
            bytes_left: 10,
        };
        for line in ["12345\n", "1234567\n", "more\n"] {
            sink.write(line);
        }
        let bytes = memory.0.lock().unwrap().clone();
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "12345\nthe log has reached its limit and ends here\n"
        );
    }
}

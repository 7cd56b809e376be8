//! The incremental decoder against a slow one that follows the steps of the
//! standard over the whole text. The first byte of the input says how the rest
//! is cut into reads.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pcload::service::sse::SseDecoder;

type Event = (Vec<u8>, Vec<u8>);

fuzz_target!(|input: &[u8]| {
    let Some((cut, stream)) = input.split_first() else {
        return;
    };
    let size = usize::from(*cut % 64) + 1;
    let mut decoder = SseDecoder::default();
    let mut events: Vec<Event> = Vec::new();
    for read in stream.chunks(size) {
        decoder
            .feed(read, |event| {
                events.push((event.name.to_vec(), event.data.to_vec()));
            })
            .expect("inputs are far smaller than the limit");
    }
    assert_eq!(events, reference(stream));
});

/// WHATWG HTML, 9.2.6, line by line.
fn reference(stream: &[u8]) -> Vec<Event> {
    let stream = stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream);
    let (mut name, mut data, mut events) = (Vec::new(), None::<Vec<u8>>, Vec::new());
    for line in lines(stream) {
        if line.is_empty() {
            if let Some(data) = data.take() {
                events.push((name.clone(), data));
            }
            name.clear();
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = match colon {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => match &mut data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => data = Some(value.to_vec()),
            },
            b"event" => name = value.to_vec(),
            _ => {}
        }
    }
    events
}

/// The lines that have an end: CR LF, CR or LF.
fn lines(stream: &[u8]) -> Vec<&[u8]> {
    let (mut lines, mut start, mut at) = (Vec::new(), 0, 0);
    while at < stream.len() {
        if stream[at] == b'\r' || stream[at] == b'\n' {
            lines.push(&stream[start..at]);
            if stream[at..].starts_with(b"\r\n") {
                at += 1;
            }
            start = at + 1;
        }
        at += 1;
    }
    lines
}

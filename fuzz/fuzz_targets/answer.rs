//! The whole way from bytes to what is recorded of an answer: it never panics,
//! and the cuts between reads change stamps only.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pcload::service::chunk::EmptyText;
use pcload::service::socket::ReadStamp;
use pcload::service::stream::{AnswerFacts, AnswerReader, Defect};
use pcload::units::RunOffset;

fuzz_target!(|input: &[u8]| {
    let Some((cut, stream)) = input.split_first() else {
        return;
    };
    let whole = read(stream, usize::MAX);
    let pieces = read(stream, usize::from(*cut % 64) + 1);
    assert_eq!(whole, pieces);
});

type Said = (Vec<u8>, usize, Option<String>, bool, Result<(), Defect>);

fn read(stream: &[u8], size: usize) -> Said {
    let mut reader = AnswerReader::stream(EmptyText::Token, true, 0);
    // One stamp for all, so that only the cuts differ.
    let stamp = ReadStamp {
        at: RunOffset(1),
        read_index: 1,
    };
    for part in stream.chunks(size) {
        reader.feed(part, stamp);
    }
    let end = reader.finish(stamp);
    let AnswerFacts {
        text,
        content,
        finish_reason,
        done,
        ..
    } = reader.into_facts();
    (text, content.len(), finish_reason, done, end)
}

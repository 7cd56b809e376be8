//! Reading a metrics page: any text is a snapshot or an error, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pcload::engine::{ReadOptions, difference, read};

fuzz_target!(|input: &[u8]| {
    let page = String::from_utf8_lossy(input);
    for dp_size in [1, 2] {
        let options = ReadOptions {
            dp_size,
            ..ReadOptions::default()
        };
        let Ok(snapshot) = read(&page, &options) else {
            continue;
        };
        assert_eq!(snapshot.ranks.len(), dp_size as usize);
        let same = difference(&snapshot, &snapshot).expect("a page is later than itself");
        assert!(same.ranks.values().all(|delta| delta.queries == 0 && delta.hits == 0));
    }
});

//! Random loads on small pools: whatever is asked in whatever order, every
//! token arrives once, nothing is left behind, and the counters add up.

use std::time::Duration;

use proptest::prelude::*;

use super::tests::{ask, config, drain, steady};
use super::*;

/// One request: arrival in ms, prompt family, prompt length, output length.
type Ask = (u64, u32, u32, usize);

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    prop::collection::vec((0_u64..200, 0_u32..3, 1_u32..120, 1_usize..40), 1..25)
}

fn paces() -> impl Strategy<Value = Pace> {
    prop_oneof![
        Just(steady()),
        Just(Pace::Fixed {
            ttft: Duration::from_millis(7),
            itl: Duration::from_millis(3),
        }),
        Just(Pace::Flood),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_load_is_served_whole(
        mut asks in asks(),
        pace in paces(),
        usable in 40_u32..80,
        step_tokens in 1_u64..64,
        max_sequences in 1_usize..6,
        ranks in 1_u32..3,
    ) {
        asks.sort_unstable();
        let mut engine = Engine::new(&Config {
            ranks,
            max_sequences,
            step_tokens,
            pace,
            ..config(4, usable)
        });
        let mut seen: Vec<(Key, usize)> = Vec::new();
        let mut note = |deliveries: Vec<Delivery>| {
            for one in deliveries {
                seen.push((one.key, one.released));
            }
        };
        let mut wanted = 0;
        for &(at, family, prompt, output) in &asks {
            let now = RunOffset(at * 1_000_000);
            while let Some(due) = engine.next_due().filter(|due| *due < now) {
                engine.advance(due);
            }
            engine.submit(now, ask(4, family * 1_000, prompt, output));
            note(engine.take_deliveries());
            wanted += output as u64;
        }
        note(drain(&mut engine).into_iter().map(|(_, one)| one).collect());
        let prompts: u64 = asks.iter().map(|ask| u64::from(ask.2)).sum();
        let sum = |read: fn(&Account) -> u64| -> u64 {
            engine.accounts().map(|(account, _)| read(account)).sum()
        };
        prop_assert_eq!(sum(|account| account.generation_tokens), wanted);
        prop_assert_eq!(sum(|account| account.prompt_tokens), prompts);
        prop_assert_eq!(sum(|account| account.queries), prompts);
        prop_assert_eq!(sum(|account| account.hits), sum(|account| account.prompt_local));
        prop_assert_eq!(sum(|account| account.full_length), asks.len() as u64);
        for (_, gauges) in engine.accounts() {
            prop_assert_eq!(gauges, Gauges::default());
        }
        let ended = seen.len();
        prop_assert!(ended as u64 <= wanted && ended >= asks.len());
    }
}

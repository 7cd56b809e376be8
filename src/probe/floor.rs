//! How much of a conversation's last prompt a healthy server serves back.
//!
//! A hybrid model (attention beside recurrent layers) resumes from states
//! stored at block ends and never from the block that holds the previous
//! request's end, hence the block that is missing from the floor.

use crate::units::BlockSize;

/// The least a healthy next turn reuses after a prompt of `previous_tokens`:
/// `max(0, previous div B − 1) · B`.
pub fn next_turn_floor(previous_tokens: u64, block: BlockSize) -> u64 {
    block.whole_blocks(previous_tokens).saturating_sub(1) * block.tokens()
}

/// The floor of the first reuse after a cold turn on an engine that keeps
/// states only every `retention_tokens` (a multiple of the block; 0 for none):
/// the plain floor rounded down to such a multiple.
pub fn first_reuse_floor(plain_floor: u64, retention_tokens: u64) -> u64 {
    match retention_tokens {
        0 => plain_floor,
        interval => plain_floor / interval * interval,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(tokens: u64) -> BlockSize {
        BlockSize::new(tokens).unwrap()
    }

    #[test]
    fn the_next_turn_reuses_all_but_the_last_block() {
        let known = [
            (480, 959, 0),
            (480, 960, 480),
            (480, 1_439, 480),
            (480, 1_440, 960),
            (480, 3_040, 2_400),
            (448, 1_024, 448),
            (448, 8_192, 7_616),
            (448, 32_768, 32_256),
            (832, 1_024, 0),
            (832, 2_048, 832),
            (832, 16_384, 14_976),
            (800, 2_501, 1_600),
            (2_176, 20_000, 17_408),
        ];
        for (size, previous, floor) in known {
            assert_eq!(
                next_turn_floor(previous, block(size)),
                floor,
                "{size} {previous}"
            );
        }
    }

    #[test]
    fn the_first_reuse_is_rounded_down_to_the_retention_interval() {
        let floor = |previous, size, retention| {
            first_reuse_floor(next_turn_floor(previous, block(size)), retention)
        };
        assert_eq!(floor(20_000, 2_176, 13_056), 13_056);
        assert_eq!(floor(45_001, 128, 128), 44_800);
        assert_eq!(floor(3_040, 480, 0), 2_400);
    }
}

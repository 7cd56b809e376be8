//! One sequence: what the engine knows of it, and when its blocks fill.

use super::Submission;
use crate::kvcache::Lease;
use crate::units::{BlockSize, RunOffset};

/// One sequence between arrival and end.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) pulse: Pulse,
    pub(super) submission: Submission,
    /// Tokens whose keys and values are in the cache, or will be after the
    /// step that runs.
    pub(super) computed: u64,
    /// Generated tokens in the chain of block hashes.
    chained: usize,
    pub(super) lease: Lease,
    /// Prompt tokens found in the local cache at the first admission.
    pub(super) local: u64,
    /// And in the external tier.
    pub(super) external: u64,
    pub(super) preemptions: u32,
    pub(super) arrived: RunOffset,
    /// First admission.
    pub(super) admitted: Option<RunOffset>,
    /// First token.
    pub(super) first: Option<RunOffset>,
}

/// What each token of a sequence asks for and changes, in one cache line: with
/// thousands of sequences a token costs what it touches.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Pulse {
    /// Tells the sequence from others that had its slot before.
    pub(super) serial: u64,
    pub(super) prompt_tokens: u64,
    /// Tokens generated so far.
    pub(super) generated: usize,
    /// Tokens it will have generated in the end.
    pub(super) output_tokens: usize,
    /// Prompt tokens found in any cache at the first admission.
    pub(super) cached: u64,
    /// Known tokens at which the chain gets its next block.
    chain_at: u64,
    /// Known tokens below which no block is left to publish.
    pub(super) publish_at: u64,
    /// When the latest token came; the arrival before the first.
    pub(super) last: RunOffset,
}

const _: () = assert!(size_of::<Pulse>() == 64);

impl Pulse {
    /// Tokens known: the prompt and what was generated.
    pub(super) fn known(&self) -> u64 {
        self.prompt_tokens + self.generated as u64
    }
}

impl Sequence {
    pub(super) fn new(
        submission: Submission,
        serial: u64,
        arrived: RunOffset,
        block: BlockSize,
    ) -> Self {
        Self {
            pulse: Pulse {
                serial,
                prompt_tokens: submission.prompt_tokens,
                generated: 0,
                output_tokens: submission.output.len(),
                cached: 0,
                chain_at: tokens_of_next(block, submission.hashes.len()),
                publish_at: 0,
                last: arrived,
            },
            submission,
            computed: 0,
            chained: 0,
            lease: Lease::default(),
            local: 0,
            external: 0,
            preemptions: 0,
            arrived,
            admitted: None,
            first: None,
        }
    }

    /// Tokens known: the prompt and what was generated.
    pub(super) fn known(&self) -> u64 {
        self.pulse.known()
    }

    /// Takes generated tokens into the chain where they fill a block.
    pub(super) fn chain_whole_blocks(&mut self, block: BlockSize) {
        if self.pulse.known() < self.pulse.chain_at {
            return;
        }
        let Submission {
            output,
            chain,
            hashes,
            ..
        } = &mut self.submission;
        let fresh = &output[self.chained..self.pulse.generated];
        hashes.extend(fresh.iter().filter_map(|&token| chain.push(token)));
        self.chained = self.pulse.generated;
        self.pulse.chain_at = tokens_of_next(block, hashes.len());
    }

    /// Takes its blocks away.
    pub(super) fn take_lease(&mut self) -> Lease {
        self.pulse.publish_at = 0;
        std::mem::take(&mut self.lease)
    }
}

/// Tokens up to the end of the block behind `blocks` blocks.
pub(super) fn tokens_of_next(block: BlockSize, blocks: usize) -> u64 {
    (blocks as u64 + 1) * block.tokens()
}

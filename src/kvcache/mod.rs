//! The prefix cache of a serving engine, as block arithmetic: a chain of block
//! hashes, reference counts, and least-recently-used eviction over the blocks
//! that nobody holds. Pure; it refuses to know requests, time and text.
//!
//! The rules are those of vLLM's block pool (seen on 0.24.0 and 0.32.0):
//! - only whole blocks are shared, and the last token of a prompt is always
//!   computed, so a lookup goes over `prompt − 1` tokens
//!   ([`BlockSize::findable_tokens`](crate::units::BlockSize::findable_tokens));
//! - a block can be found from the moment it is scheduled, not computed;
//! - of one sequence the tail is evicted before the head;
//! - one block of the pool (the null block) is never usable.

mod free_list;
mod hash;
#[cfg(test)]
mod naive;
mod pool;

pub use hash::{BlockHash, ChainHasher, chain};
pub use pool::{Lease, PrefixCache};

//! What the page says of the engine's configuration. It never fails: a label
//! that is absent, `None` or no number is a fact that is not known.

use crate::engine::EngineFacts;
use crate::engine::exposition::Sample;

/// Adds what one `vllm:cache_config_info` sample says to `facts`. Of several
/// engines the smallest pool is kept, since that one evicts first.
pub(crate) fn add_vllm_cache_config(facts: &mut EngineFacts, sample: &Sample<'_>, dp_size: u32) {
    let count = |label: &str| {
        let count = sample.label(label)?.trim().parse::<u64>().ok()?;
        (count > 0).then_some(count)
    };
    let flag = |label: &str| match sample.label(label)?.trim() {
        "True" | "true" | "1" => Some(true),
        "False" | "false" | "0" => Some(false),
        _ => None,
    };
    // On hybrid models `block_size` is not what is shared; 0.32 says apart what
    // its attention layers use.
    let block = count("effective_attention_block_size").or_else(|| count("block_size"));
    let tokens = count("kv_cache_size_tokens");
    let pool = count("num_gpu_blocks").map(|blocks| one_rank(blocks, block, tokens, dp_size));
    facts.block_size = facts.block_size.or(block);
    facts.kv_cache_tokens = smaller(facts.kv_cache_tokens, tokens);
    facts.num_gpu_blocks = smaller(facts.num_gpu_blocks, pool);
    facts.prefix_caching = facts.prefix_caching.or(flag("enable_prefix_caching"));
    facts.block_size_set_by_user = facts
        .block_size_set_by_user
        .or(flag("user_specified_block_size"));
}

/// Blocks of one rank. vLLM adds up `num_gpu_blocks` over the ranks of a server
/// and shows the sum at each of them (seen on 0.32.0 with two ranks: 65536
/// blocks of 32 tokens beside a `kv_cache_size_tokens` of 1048576).
fn one_rank(blocks: u64, block: Option<u64>, tokens: Option<u64>, dp_size: u32) -> u64 {
    let share = blocks / u64::from(dp_size.max(1));
    match (block, tokens) {
        (Some(block), Some(tokens)) if tokens / block >= blocks => blocks,
        _ => share.max(1),
    }
}

fn smaller(known: Option<u64>, found: Option<u64>) -> Option<u64> {
    match (known, found) {
        (Some(known), Some(found)) => Some(known.min(found)),
        (known, found) => known.or(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::exposition::lines;

    fn facts(labels: &str, dp_size: u32) -> EngineFacts {
        let page = format!("vllm:cache_config_info{{{labels}}} 1.0");
        let sample = lines(&page).next().unwrap().sample().unwrap();
        let mut facts = EngineFacts::default();
        add_vllm_cache_config(&mut facts, &sample, dp_size);
        facts
    }

    #[test]
    fn labels_without_a_value_are_facts_not_known() {
        let found = facts(
            "block_size=\"16\",num_gpu_blocks=\"None\",enable_prefix_caching=\"True\"",
            1,
        );
        assert_eq!(found.block_size, Some(16));
        assert_eq!(found.num_gpu_blocks, None);
        assert_eq!(found.prefix_caching, Some(true));
        let found = facts("block_size=\"None\",enable_prefix_caching=\"False\"", 1);
        assert_eq!(found.block_size, None);
        assert_eq!(found.prefix_caching, Some(false));
        assert_eq!(facts("block_size=\"0\"", 1).block_size, None);
        assert_eq!(facts("block_size=\"-4\"", 1).block_size, None);
    }

    #[test]
    fn the_attention_block_wins_over_the_configured_one() {
        let found = facts(
            "block_size=\"16\",effective_attention_block_size=\"528\"",
            1,
        );
        assert_eq!(found.block_size, Some(528));
    }

    #[test]
    fn the_pool_is_that_of_one_rank() {
        let summed = "block_size=\"32\",num_gpu_blocks=\"65536\",kv_cache_size_tokens=\"1048576\"";
        assert_eq!(facts(summed, 2).num_gpu_blocks, Some(32768));
        let own = "block_size=\"16\",num_gpu_blocks=\"65536\",kv_cache_size_tokens=\"1048576\"";
        assert_eq!(facts(own, 2).num_gpu_blocks, Some(65536));
        assert_eq!(facts("num_gpu_blocks=\"64\"", 2).num_gpu_blocks, Some(32));
    }
}

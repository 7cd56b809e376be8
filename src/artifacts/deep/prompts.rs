//! Tokenizes prompts again and proves their layout: length, common prefix,
//! seed, and a first divergent block that nothing else has.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde_json::json;

use crate::artifacts::deep::Findings;
use crate::artifacts::{AddedTokens, ArtifactError, FullRow, PreparedSet, WarmupItem};
use crate::tokenizer::Tokenizer;
use crate::units::{BlockSize, GroupIndex};
use crate::units::{id_list_sha256, id_tuple_sha256};

/// The check's state between two batches.
pub(super) struct PromptCheck<'a> {
    set: &'a PreparedSet,
    tokenizer: &'a dyn Tokenizer,
    added: AddedTokens,
    block_size: BlockSize,
    /// The longest shared prefix seen of each group.
    prefixes: BTreeMap<GroupIndex, Vec<u32>>,
    /// Each first divergent block, and whose it is.
    blocks: BTreeMap<Vec<u32>, String>,
    prompt_count: u64,
}

/// One prompt to prove.
struct Prompt<'a> {
    name: &'a str,
    group: GroupIndex,
    ids: Vec<u32>,
    shared: usize,
}

impl<'a> PromptCheck<'a> {
    /// Begins the check; `None`, and a finding, when `tokenizer` is not the one
    /// the set was made with.
    pub(super) fn new(
        set: &'a PreparedSet,
        tokenizer: &'a dyn Tokenizer,
        findings: &mut Findings,
    ) -> Result<Option<Self>, ArtifactError> {
        let section = &set.manifest()["tokenizer"];
        let is_same = if set.is_native() {
            set.extension()["tokenizer_file_sha256"] == tokenizer.identity().file_sha256
        } else {
            section["vocab_size"] == tokenizer.vocab_size()
                && section["special_token_ids"] == json!(tokenizer.special_ids())
        };
        if !is_same {
            let path = &tokenizer.identity().path;
            findings.add(
                "TOKENIZER_DIFFERS",
                format!("`{path}` is not the tokenizer the set was made with"),
            );
            return Ok(None);
        }
        let added = if set.is_native() {
            set.added_tokens()?
        } else {
            AddedTokens {
                front: tokenizer.prefix_ids().to_vec(),
                behind: tokenizer.suffix_ids().to_vec(),
            }
        };
        let is_default = added.front == tokenizer.prefix_ids();
        findings.check(added.front.is_empty() || is_default, "SERVER_VIEW", || {
            format!(
                "tokens in front are {:?}, the tokenizer adds {:?}",
                added.front,
                tokenizer.prefix_ids()
            )
        });
        Ok(Some(Self {
            set,
            tokenizer,
            added,
            block_size: set.config("tokenizer.block_size")?,
            prefixes: BTreeMap::new(),
            blocks: BTreeMap::new(),
            prompt_count: 0,
        }))
    }

    /// Prompts proved so far.
    pub(super) fn prompt_count(&self) -> u64 {
        self.prompt_count
    }

    /// Proves a batch of rows.
    pub(super) fn rows(&mut self, rows: &[FullRow], findings: &mut Findings) {
        let encoded: Vec<Result<Vec<u32>, String>> =
            rows.par_iter().map(|row| self.row_ids(row)).collect();
        for (row, ids) in rows.iter().zip(encoded) {
            match ids {
                Ok(ids) => self.row(row, ids, findings),
                Err(problem) => findings.add("PROMPT_LAYOUT", problem),
            }
        }
    }

    /// The row's ids: those that are sent, or those of its text.
    fn row_ids(&self, row: &FullRow) -> Result<Vec<u32>, String> {
        let sent = row
            .pcload
            .as_ref()
            .and_then(|extension| extension.prompt_token_ids.as_ref());
        self.ids(&row.request_id, &row.question, sent)
    }

    fn ids(&self, name: &str, text: &str, sent: Option<&Vec<u32>>) -> Result<Vec<u32>, String> {
        let failed = |error| format!("{name}: {error}");
        let Some(ids) = sent else {
            return self.tokenizer.encode(text).map_err(failed);
        };
        let decoded = self.tokenizer.decode(ids).map_err(failed)?;
        if decoded == text {
            Ok(ids.clone())
        } else {
            Err(format!("{name}: its ids are not its text"))
        }
    }

    fn row(&mut self, row: &FullRow, ids: Vec<u32>, findings: &mut Findings) {
        let name = &row.request_id;
        let (shared, seed) = (index(row.shared_prefix_tokens), index(row.seed_tokens));
        if ids.len() as u64 != row.actual_input_tokens || ids.len() < shared.saturating_add(seed) {
            findings.add(
                "PROMPT_LAYOUT",
                format!(
                    "{name}: encodes to {} tokens, not to {}",
                    ids.len(),
                    row.actual_input_tokens
                ),
            );
            return;
        }
        let seed_sha256 = id_tuple_sha256(&ids[shared..shared + seed]);
        findings.check(seed_sha256 == row.seed_sha256, "PROMPT_LAYOUT", || {
            format!("{name}: behind the shared prefix stands another seed than seed_sha256 says")
        });
        let block =
            self.added
                .first_divergent_block(self.block_size, row.shared_prefix_tokens, ids.len());
        if let Some(extension) = &row.pcload {
            let digest = id_tuple_sha256(&ids[block]);
            let holds = digest == extension.first_divergent_block_sha256;
            findings.check(holds, "PROMPT_LAYOUT", || {
                format!("{name}: its first divergent block is another")
            });
        }
        let prompt = Prompt {
            name,
            group: row.group_id,
            ids,
            shared,
        };
        self.prove(&prompt, findings);
    }

    /// Proves the prefix against the group's other prompts, and that no other
    /// prompt has the same first divergent block.
    fn prove(&mut self, prompt: &Prompt<'_>, findings: &mut Findings) {
        self.prompt_count += 1;
        let longest = self.prefixes.entry(prompt.group).or_default();
        let common = longest.len().min(prompt.shared);
        findings.check(
            longest[..common] == prompt.ids[..common],
            "CANONICAL_PREFIX",
            || format!("{}: its prefix is not its group's", prompt.name),
        );
        if prompt.shared > longest.len() {
            *longest = prompt.ids[..prompt.shared].to_vec();
        }
        let range = self.added.first_divergent_block(
            self.block_size,
            prompt.shared as u64,
            prompt.ids.len(),
        );
        let block = prompt.ids[range].to_vec();
        if let Some(other) = self.blocks.insert(block, prompt.name.to_owned()) {
            findings.add(
                "SEED_COLLISION",
                format!(
                    "{} and {other} have the same first divergent block",
                    prompt.name
                ),
            );
        }
    }

    /// Proves the warm-up prompts, then the canonical prefixes against all
    /// divergent blocks and the manifest.
    pub(super) fn finish(&mut self, findings: &mut Findings) -> Result<(), ArtifactError> {
        let plan = self.set.warmup_plan()?;
        let encoded: Vec<Result<Vec<u32>, String>> = plan
            .par_iter()
            .map(|item| self.ids(&item.request_id, &item.prompt, item.token_ids.as_ref()))
            .collect();
        for (item, ids) in plan.iter().zip(encoded) {
            self.warmup(item, ids, findings);
        }
        for (group, prefix) in &self.prefixes {
            let section = &self.set.manifest()["groups"][group.to_string()];
            let is_whole = section["canonical_prefix_tokens"] == prefix.len();
            let digest = section["canonical_prefix_sha256"].as_str();
            let holds = !is_whole || digest == Some(&id_list_sha256(prefix));
            findings.check(holds, "CANONICAL_PREFIX", || {
                format!("{group}: its prompts begin with another prefix than the manifest says")
            });
            for block in self.blocks_of(prefix) {
                if let Some(name) = self.blocks.get(block) {
                    findings.add(
                        "SEED_COLLISION",
                        format!("the first divergent block of {name} is part of {group}'s prefix"),
                    );
                }
            }
        }
        Ok(())
    }

    fn warmup(
        &mut self,
        item: &WarmupItem,
        ids: Result<Vec<u32>, String>,
        findings: &mut Findings,
    ) {
        let name = &item.request_id;
        let is_long = item.shared_prefix_tokens <= item.input_tokens;
        match ids {
            Ok(ids) if is_long && ids.len() as u64 == item.input_tokens => {
                let prompt = Prompt {
                    name,
                    group: item.group_id,
                    ids,
                    shared: index(item.shared_prefix_tokens),
                };
                self.prove(&prompt, findings);
            }
            Ok(ids) => findings.add(
                "PROMPT_LAYOUT",
                format!(
                    "{name}: encodes to {} tokens, not to {}",
                    ids.len(),
                    item.input_tokens
                ),
            ),
            Err(problem) => findings.add("PROMPT_LAYOUT", problem),
        }
    }

    /// Whole blocks of a prefix, as the server cuts them; added tokens are left
    /// out.
    fn blocks_of<'p>(&self, prefix: &'p [u32]) -> impl Iterator<Item = &'p [u32]> {
        let block = index(self.block_size.tokens());
        let front = self.added.front.len() % block;
        let first = if front == 0 { 0 } else { block - front };
        let (head, rest) = prefix.split_at(first.min(prefix.len()));
        std::iter::once(head)
            .filter(move |head| !head.is_empty() && head.len() == first)
            .chain(rest.chunks_exact(block))
    }
}

/// A token count as a place in a list; more than any list has where it does not
/// fit.
fn index(tokens: u64) -> usize {
    usize::try_from(tokens).unwrap_or(usize::MAX)
}

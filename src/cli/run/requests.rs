//! Rows of a prepared set as the driver, the warm-up and the judgment want them.

use crate::analyze::PlannedRow;
use crate::artifacts::{FullRow, PreparedSet, WarmupItem};
use crate::cli::exit::Failure;
use crate::drive::{LoadRequest, phases};
use crate::scenario::{PromptFormat, Scenario};
use crate::service::ControlPrompt;
use crate::service::wire::Prompt;

use super::settings::Settings;

/// The formal requests with their bodies, in send order.
pub(super) fn load_requests(
    scenario: &Scenario,
    settings: &Settings,
    rows: &[FullRow],
) -> Result<Vec<LoadRequest>, Failure> {
    let mut template = settings.native.body_template(
        &scenario.service.model,
        &scenario.aisbench.model.generation_kwargs,
    );
    template.add_special_tokens = settings.add_special_tokens;
    template.cache_salt.clone_from(&settings.cache_salt);
    let format = scenario.pcload.prompt_format;
    let requests = rows.iter().map(|row| {
        let prompt = prompt_of(row, format)?;
        Ok(LoadRequest {
            sequence_index: row.sequence_index,
            request_id: row.request_id.clone(),
            group: row.group_id,
            dp_rank: row.dp_rank,
            lane_sequence: row.lane_sequence,
            body: template.build(&prompt, row.max_tokens),
            planned_prompt_tokens: row.actual_input_tokens
                + settings.prefix_tokens
                + settings.suffix_tokens,
            max_tokens: row.max_tokens,
        })
    });
    requests.collect()
}

fn prompt_of(row: &FullRow, format: PromptFormat) -> Result<Prompt, Failure> {
    let ids = row
        .pcload
        .as_ref()
        .and_then(|added| added.prompt_token_ids.as_ref());
    match (format, ids) {
        (PromptFormat::Text, _) => Ok(Prompt::Text(row.question.clone())),
        (PromptFormat::TokenIds, Some(ids)) => Ok(Prompt::TokenIds(ids.clone())),
        (PromptFormat::TokenIds, None) => Err(no_ids(&row.request_id)),
    }
}

fn no_ids(request_id: &str) -> Failure {
    Failure::input(
        "TOKEN_IDS_MISSING",
        format!("{request_id} is to be sent as token ids, but the set holds none"),
    )
    .hint("prepare the set again with `pcload.prompt_format` set to `token_ids`")
}

/// The warm-up plan as the phases want it.
pub(super) fn warmup_items(
    set: &PreparedSet,
    format: PromptFormat,
) -> Result<Vec<phases::WarmupItem>, Failure> {
    let plan = set.warmup_plan()?;
    plan.into_iter()
        .map(|item| warmup_item(item, format))
        .collect()
}

fn warmup_item(item: WarmupItem, format: PromptFormat) -> Result<phases::WarmupItem, Failure> {
    let prompt = match (format, item.token_ids) {
        (PromptFormat::Text, _) => ControlPrompt::Text(item.prompt),
        (PromptFormat::TokenIds, Some(ids)) => ControlPrompt::TokenIds(ids),
        (PromptFormat::TokenIds, None) => return Err(no_ids(&item.request_id)),
    };
    Ok(phases::WarmupItem {
        group_id: item.group_id,
        dp_rank: item.dp_rank,
        prompt,
        shared_prefix_tokens: item.shared_prefix_tokens,
    })
}

/// The plan as the judgment wants it.
pub(super) fn planned_rows(rows: &[FullRow]) -> Vec<PlannedRow> {
    rows.iter()
        .map(|row| PlannedRow {
            sequence_index: row.sequence_index,
            request_id: row.request_id.clone(),
            group: row.group_id,
            dp_rank: row.dp_rank,
            lane_sequence: row.lane_sequence,
            input_tokens: row.actual_input_tokens,
            shared_prefix_tokens: row.shared_prefix_tokens,
            max_tokens: row.max_tokens,
            theory_hit_tokens: row.theoretical_hit_tokens,
        })
        .collect()
}

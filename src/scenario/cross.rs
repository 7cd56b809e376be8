//! Rules that span several fields: counts that must add up, requests that must
//! hold what is asked of them, settings that exclude each other.

use crate::scenario::document::Document;
use crate::scenario::groups::{Override, by_group};
use crate::scenario::problem::{Code, Problem, join};
use crate::scenario::section::Section;
use crate::scenario::{CacheSalt, OutputLength};

const INPUT: &str = "requests.input_length";
const OUTPUT: &str = "requests.output_length";
const OVERRIDES: &str = "prefix_cache.groups.overrides";
const KWARGS: &str = "aisbench.model.generation_kwargs";

/// Checks `document`; problems go to `root`, remarks into the document's notes.
pub(super) fn check(document: &mut Document, root: &mut Section<'_>) {
    counts(document, root);
    lengths(document, root);
    overrides(document, root);
    min_tokens(document, root);
    cache_salt(document, root);
}

/// Adds a problem at the place of the value its path names, or of the nearest
/// one above.
fn refuse(root: &mut Section<'_>, problem: Problem) {
    let offset = root.offset_of(&problem.path);
    root.problems().push(problem.at(offset));
}

fn counts(document: &Document, root: &mut Section<'_>) {
    if !root.sound_at("requests.count") {
        return;
    }
    let count = document.requests.count;
    let whose = format!("`requests.count` is {count}");
    let input = document.requests.input.as_ref();
    let output = document.requests.output.as_ref();
    let wrong = [
        input.and_then(|lengths| lengths.miscount(INPUT, count, &whose)),
        output.and_then(|lengths| lengths.miscount(OUTPUT, count, &whose)),
    ];
    for problem in wrong.into_iter().flatten() {
        refuse(root, problem);
    }
}

/// Every request must hold its non-shared part.
fn lengths(document: &Document, root: &mut Section<'_>) {
    if !minimum_is_sound(root) {
        return;
    }
    let minimum = document.prefix_cache.minimum_non_shared_length;
    let general = document.requests.input.as_ref();
    let general = general.map(|lengths| (INPUT.to_owned(), &lengths.rule));
    let single = document.prefix_cache.groups.overrides.iter();
    let single = single.filter_map(|rules| {
        let lengths = rules.input.as_ref()?;
        Some((rules.path("input_length"), &lengths.rule))
    });
    let short: Vec<(String, u64)> = general
        .into_iter()
        .chain(single)
        .map(|(path, rule)| (path, rule.shortest()))
        .filter(|(_, shortest)| *shortest < minimum)
        .collect();
    if root.manner().strict {
        for (path, shortest) in short {
            let what = format!("a request of {shortest} tokens cannot hold its non-shared part");
            let problem = Problem::new(Code::TooShort, path, what)
                .expected(format!("at least {minimum} tokens"))
                .hint(
                    "the part is `prefix_cache.minimum_non_shared_length`, by default \
                     `seed_blocks` × `block_size`",
                );
            refuse(root, problem);
        }
    }
}

fn minimum_is_sound(root: &Section<'_>) -> bool {
    [
        "tokenizer.block_size",
        "prefix_cache.seed_blocks",
        "prefix_cache.minimum_non_shared_length",
    ]
    .iter()
    .all(|path| root.sound_at(path))
}

/// Lists of single groups must fit the requests that the group gets.
fn overrides(document: &mut Document, root: &mut Section<'_>) {
    let groups = &document.prefix_cache.groups;
    let Some(assignment) = &groups.assignment else {
        return;
    };
    if groups.overrides.is_empty()
        || !root.sound_at("requests.count")
        || !root.sound_at("prefix_cache.groups.count")
    {
        return;
    }
    let requests = usize::try_from(document.requests.count).unwrap_or(usize::MAX);
    let sizes = by_group(&assignment.request_counts(requests, groups.count));
    let mut wrong = Vec::new();
    for rules in &groups.overrides {
        let Some(group) = rules.group else {
            if root.sound_at(&rules.path("")) {
                document.notes.push(format!(
                    "{}: this spelling never matches a group; leave out the leading zeros",
                    rules.path("")
                ));
            }
            continue;
        };
        match sizes.get(&group).copied().unwrap_or(0) {
            0 => document.notes.push(format!(
                "{}: {group} has no requests, its rules are not used",
                rules.path("")
            )),
            size => wrong.extend(miscounts(rules, size as u64)),
        }
    }
    for problem in wrong {
        refuse(root, problem);
    }
}

fn miscounts(rules: &Override, size: u64) -> impl Iterator<Item = Problem> {
    let whose = format!("{} has {size} requests", rules.key);
    let input = rules.input.as_ref();
    let output = rules.output.as_ref();
    let input =
        input.and_then(|lengths| lengths.miscount(&rules.path("input_length"), size, &whose));
    let output =
        output.and_then(|lengths| lengths.miscount(&rules.path("output_length"), size, &whose));
    input.into_iter().chain(output)
}

impl Override {
    /// The path of one of its keys, or its own.
    fn path(&self, key: &str) -> String {
        let own = join(OVERRIDES, &self.key);
        if key.is_empty() { own } else { join(&own, key) }
    }
}

/// A lower bound on outputs must not exceed the shortest limit drawn.
fn min_tokens(document: &Document, root: &mut Section<'_>) {
    let kwargs = &document.aisbench.model.generation_kwargs;
    let wanted = kwargs.iter().find(|(key, _)| key == "min_tokens");
    let Some(wanted) = wanted.and_then(|(_, value)| value.as_u64()) else {
        return;
    };
    let general = document.requests.output.as_ref();
    let single = document.prefix_cache.groups.overrides.iter();
    let rules = general
        .into_iter()
        .chain(single.filter_map(|rules| rules.output.as_ref()));
    let Some(shortest) = rules
        .map(|lengths| OutputLength::shortest(&lengths.rule))
        .min()
    else {
        return;
    };
    if wanted > shortest && root.manner().strict {
        let what = format!("outputs are limited to {shortest} tokens in some requests");
        let problem = Problem::new(Code::Conflict, format!("{KWARGS}.min_tokens"), what)
            .found(format!("`{wanted}`"))
            .expected(format!("at most {shortest}"))
            .hint("raise the shortest `requests.output_length`, or lower `min_tokens`");
        refuse(root, problem);
    }
}

/// A salt among the generation arguments becomes the salt of the whole run,
/// warm-up included: one that differs between them would give no hits.
fn cache_salt(document: &mut Document, root: &mut Section<'_>) {
    let kwargs = &mut document.aisbench.model.generation_kwargs;
    let Some(at) = kwargs.iter().position(|(key, _)| key == "cache_salt") else {
        return;
    };
    let (_, salt) = kwargs.remove(at);
    let Some(salt) = salt.as_str().map(|salt| CacheSalt::Fixed(salt.to_owned())) else {
        return;
    };
    let own = &mut document.pcload.cache_salt;
    if own.as_ref().is_some_and(|own| *own != salt) {
        let what = "differs from `pcload.cache_salt`";
        let problem = Problem::new(Code::Conflict, format!("{KWARGS}.cache_salt"), what);
        refuse(root, problem.expected("one salt in one place"));
    } else {
        *own = Some(salt);
    }
}

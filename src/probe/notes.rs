//! What a reader must know besides the verdict, in sentences: how far the block
//! can be trusted, what the turns could not show, and what a clean arm claims.

use super::block::BlockSource;
use super::record::{ProbeEnd, ProbeKind, ProbeRecord, ReuseSource};
use super::verdict::{DoseVerdict, NeedleVerdict, ProbeVerdict, TurnVerdict};

/// Why a record judges nothing: a first turn that was not cold, or no turn and
/// no case that could be checked.
pub fn why_nothing(record: &ProbeRecord) -> String {
    let why = invalid(record)
        .or_else(|| needles(record))
        .or_else(|| undecided(record));
    why.unwrap_or_else(|| match record.end {
        ProbeEnd::Budget => "the budget was used up before a turn could be checked".to_owned(),
        _ => "no turn could be checked".to_owned(),
    })
}

/// What a passed probe does not say.
const CLEAN_ARM: &str = "a clean arm speaks for this arm only: to claim a fix, the arm that showed \
                         the defect must still show it";

/// The sentence that goes with a clean arm, where the record is one.
fn clean_arm(record: &ProbeRecord) -> Option<&'static str> {
    (record.verdict == ProbeVerdict::Passed).then_some(CLEAN_ARM)
}

/// All sentences for `record`, the most important first.
pub fn describe(record: &ProbeRecord) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(invalid(record));
    notes.extend(control(record));
    notes.extend(other_engine(record));
    notes.extend(block(record));
    notes.extend(undecided(record));
    notes.extend(needles(record));
    notes.extend(needles_behind(record));
    notes.extend(knee(record));
    notes.extend(retention(record));
    notes.extend(reuse_source(record));
    notes.extend(clean_arm(record).map(str::to_owned));
    notes
}

fn has(record: &ProbeRecord, verdict: TurnVerdict) -> bool {
    let mut rows = record.requests.iter();
    rows.any(|row| row.verdict == Some(verdict))
}

fn invalid(record: &ProbeRecord) -> Option<String> {
    let row = record
        .requests
        .iter()
        .find(|row| row.verdict == Some(TurnVerdict::NotCold))?;
    Some(format!(
        "{} was to be cold, yet {} of {} tokens came from the cache: the run is invalid (a prompt \
         template longer than a block, or a cache that ignores what is in front of a text)",
        row.side,
        row.cached_tokens.unwrap_or(0),
        row.prompt_tokens
    ))
}

fn control(record: &ProbeRecord) -> Option<String> {
    if record.probe == ProbeKind::Single {
        return None;
    }
    let Some(control) = &record.control else {
        let advice = "no single arm is quoted: run `pcload probe single` or add --with-control to \
                      tell interleaving from a cache that does not work at all";
        // Doses are their own control where one of them did no harm.
        let harmless = record
            .doses
            .iter()
            .any(|case| case.verdict == DoseVerdict::Ok);
        let wanted = record.verdict == ProbeVerdict::Reproduced && !harmless;
        return wanted.then(|| advice.to_owned());
    };
    Some(match (control.verdict, record.verdict) {
        (ProbeVerdict::Passed, ProbeVerdict::Reproduced) => format!(
            "the single arm is clean ({} of {} turns): what is lost here is lost to interleaving",
            control.passed_count, control.checked_count
        ),
        (ProbeVerdict::Passed, _) => format!(
            "the single arm is clean ({} of {} turns)",
            control.passed_count, control.checked_count
        ),
        (ProbeVerdict::Reproduced, _) => format!(
            "the single arm fails too ({} of {} turns passed): nothing about interleaving can be \
             read from this probe",
            control.passed_count, control.checked_count
        ),
        (ProbeVerdict::NotCold | ProbeVerdict::NothingJudged, _) => {
            "the single arm judged nothing, so it is no control".to_owned()
        }
    })
}

/// A control that was run on another engine, or at another size.
fn other_engine(record: &ProbeRecord) -> Option<String> {
    let control = record.control.as_ref()?;
    let version = &record.engine.get("version").value;
    let told = !control.engine_version.is_null() && !version.is_null();
    if told && control.engine_version != *version {
        return Some(format!(
            "the single arm ran on engine version {}, this one on {version}: it is no control for \
             this engine",
            control.engine_version
        ));
    }
    let tokens = record.turns().next()?.prompt_tokens;
    let off = super::is_off(tokens, control.tokens) && record.probe != ProbeKind::Single;
    off.then(|| {
        format!(
            "the single arm began with {} tokens, this probe with {tokens}",
            control.tokens
        )
    })
}

fn block(record: &ProbeRecord) -> Option<String> {
    let flag = record.engine.get("block_size");
    let by_flag = flag.source == super::FactSource::Flag;
    let untrusted = if by_flag {
        format!(
            " (the engine was started with --block-size {}, so its metric only repeats that)",
            flag.value
        )
    } else {
        String::new()
    };
    match (record.block_source, record.block_tokens) {
        (BlockSource::Inferred, Some(tokens)) => Some(format!(
            "block {tokens} is inferred: it is the largest grid that all cached values fit and may \
             be a multiple of the real one{untrusted}; --block N settles it"
        )),
        (BlockSource::Fallback, _) => Some(format!(
            "no block is known{untrusted}: a turn must reuse 90 % of the prompt before it, which \
             misreads conversations shorter than about ten blocks; --block N settles it"
        )),
        _ => None,
    }
}

fn undecided(record: &ProbeRecord) -> Option<String> {
    let undecided: Vec<_> = record
        .requests
        .iter()
        .filter(|row| row.verdict == Some(TurnVerdict::Undecided))
        .collect();
    let first = undecided.first()?;
    let why = match (first.cached_tokens, first.floor_tokens) {
        (None, _) => "reuse is not reported, which is not the same as no reuse",
        (_, Some(0)) => "the conversation is shorter than two blocks",
        _ => {
            "block size not confirmed: reuse falls short by this block, but fits a larger one; \
             --block N settles it"
        }
    };
    Some(match undecided.len() {
        1 => format!("1 turn is undecided: {why}"),
        count => format!("{count} turns are undecided: {why}"),
    })
}

fn needles(record: &ProbeRecord) -> Option<String> {
    let cannot = |case: &&super::NeedleCase| case.verdict == NeedleVerdict::ModelCannot;
    let count = record.needles.iter().filter(cannot).count();
    (count > 0).then(|| {
        format!(
            "in {count} of {} cases the model cannot answer a cold copy either: they prove nothing",
            record.needles.len()
        )
    })
}

fn needles_behind(record: &ProbeRecord) -> Option<String> {
    let behind = record
        .needles
        .iter()
        .filter(|case| case.verdict == NeedleVerdict::Ok && case.within_reuse == Some(false));
    let depths: Vec<String> = behind.map(|case| case.depth_ratio.to_string()).collect();
    (!depths.is_empty()).then(|| {
        format!(
            "at depth {} the phrase stands behind what was reused: its answer says nothing of the \
             restored state",
            depths.join(", ")
        )
    })
}

fn knee(record: &ProbeRecord) -> Option<String> {
    let knee = record.knee.as_ref()?;
    let share = |ratio: Option<f64>| match ratio {
        Some(ratio) => format!(" ({:.1} % of the KV pool)", ratio * 100.0),
        None => String::new(),
    };
    let shares = record.knee_share;
    let low = share(shares.and_then(|share| share.harmless_ratio));
    let high = share(shares.and_then(|share| share.harmful_ratio));
    Some(match (knee.harmless_tokens, knee.harmful_tokens) {
        (Some(harmless), Some(harmful)) => format!(
            "knee between {harmless} tokens{low}, harmless in {} of {}, and {harmful} tokens{high}, \
             harmful in {} of {}{}",
            knee.harmless_observations[1],
            knee.harmless_observations[0],
            knee.harmful_observations[1],
            knee.harmful_observations[0],
            if knee.resolved { "" } else { "; not resolved" }
        ),
        (Some(harmless), None) => {
            format!("no knee: {harmless} tokens{low} are harmless, and more was not tried")
        }
        (None, Some(harmful)) => format!(
            "no knee: reuse is broken at {harmful} tokens, and nothing smaller was harmless"
        ),
        (None, None) => "no knee: no dose could be judged".to_owned(),
    })
}

fn retention(record: &ProbeRecord) -> Option<String> {
    if record.retention_tokens == 0 {
        return None;
    }
    let last = record.turns().map(|row| row.round).max()?;
    (last == 2).then(|| {
        format!(
            "with two rounds only the first-reuse case was seen (floor rounded down to multiples of \
             {}); a third round shows the rest",
            record.retention_tokens
        )
    })
}

fn reuse_source(record: &ProbeRecord) -> Option<String> {
    let counted = |row: &&super::RequestRow| row.source == ReuseSource::Counters;
    let count = record.turns().filter(counted).count();
    (count > 0)
        .then(|| format!("reuse of {count} turns is read from the hit counters, not from usage"))
}

impl ProbeRecord {
    /// The turns and cases that failed, named: `A round 3 LOST`.
    pub fn failures(&self) -> Vec<String> {
        let needles = self.needles.iter().filter_map(|case| {
            let word = match case.verdict {
                NeedleVerdict::WrongAnswer => "WRONG-ANSWER",
                NeedleVerdict::NoReuse => "NO-REUSE",
                _ => return None,
            };
            Some(format!("needle {} {word}", case.depth_ratio))
        });
        let doses = self.doses.iter().filter_map(|case| {
            let word = match case.verdict {
                DoseVerdict::Partial => "PARTIAL",
                DoseVerdict::Wiped => "WIPED",
                _ => return None,
            };
            Some(format!("dose {} {word}", case.dose_tokens))
        });
        let turns = self.requests.iter().filter_map(|row| {
            let word = match row.verdict? {
                TurnVerdict::Partial => "PARTIAL",
                TurnVerdict::Lost => "LOST",
                TurnVerdict::NotCold => "NOT-COLD",
                _ => return None,
            };
            Some(format!("{} round {} {word}", row.side, row.round))
        });
        match self.probe {
            _ if has(self, TurnVerdict::NotCold) => turns.collect(),
            ProbeKind::Single | ProbeKind::Alternation => turns.collect(),
            ProbeKind::Dose => doses.collect(),
            ProbeKind::Needle => needles.collect(),
        }
    }

    /// One sentence on the whole.
    pub fn headline(&self) -> String {
        let what = match self.probe {
            ProbeKind::Needle => "needles",
            _ => "turns",
        };
        let counted = format!(
            "{} of {} {what} passed",
            self.passed_count, self.checked_count
        );
        let verdict = match self.verdict {
            ProbeVerdict::Passed => format!("PASSED: {counted}"),
            ProbeVerdict::Reproduced => format!("REPRODUCED: {counted}"),
            ProbeVerdict::NotCold => "INVALID: a first turn was not cold".to_owned(),
            ProbeVerdict::NothingJudged => "NOTHING JUDGED".to_owned(),
        };
        match self.end {
            ProbeEnd::Complete | ProbeEnd::NotCold => verdict,
            ProbeEnd::Budget => format!("{verdict} (the budget was used up)"),
            ProbeEnd::Interrupted => format!("{verdict} (interrupted)"),
            ProbeEnd::Failed => format!("{verdict} (the server failed)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::record::tests::record;
    use crate::probe::{Control, Fact, FactSource};

    fn said(record: &ProbeRecord, words: &str) -> bool {
        describe(record).iter().any(|note| note.contains(words))
    }

    #[test]
    fn a_clean_arm_claims_no_more_than_it_may() {
        let mut clean = record(ProbeKind::Single, &[TurnVerdict::Cold, TurnVerdict::Ok]);
        assert!(said(&clean, "speaks for this arm only"));
        clean.verdict = ProbeVerdict::Reproduced;
        assert!(!said(&clean, "speaks for this arm only"));
    }

    #[test]
    fn the_single_arm_is_quoted_by_the_others() {
        let turns = [TurnVerdict::Cold, TurnVerdict::Lost];
        let mut lost = record(ProbeKind::Alternation, &turns);
        assert!(said(&lost, "--with-control"));
        let clean = record(ProbeKind::Single, &[TurnVerdict::Cold, TurnVerdict::Ok]);
        lost.control = Some(Control::of(&clean, "single.json"));
        assert!(said(&lost, "lost to interleaving"));
        let broken = record(ProbeKind::Single, &turns);
        lost.control = Some(Control::of(&broken, "single.json"));
        assert!(said(&lost, "nothing about interleaving can be read"));
        assert_eq!(lost.failures(), ["A round 2 LOST"]);
    }

    #[test]
    fn a_control_of_another_engine_or_size_is_said() {
        let turns = [TurnVerdict::Cold, TurnVerdict::Lost];
        let mut lost = record(ProbeKind::Alternation, &turns);
        let mut single = record(ProbeKind::Single, &[TurnVerdict::Cold, TurnVerdict::Ok]);
        let version = |text: &str| Fact::new(text, FactSource::Metric);
        lost.engine.offer("version", version("0.29.0"));
        lost.control = Some(Control::of(&single, "single.json"));
        assert!(!said(&lost, "no control for this engine") && !said(&lost, "began with"));
        single.engine.offer("version", version("0.30.0"));
        lost.control = Some(Control::of(&single, "single.json"));
        assert!(said(&lost, "no control for this engine"));
        single.engine = lost.engine.clone();
        single.requests[0].prompt_tokens = 1_000;
        lost.control = Some(Control::of(&single, "single.json"));
        assert!(said(&lost, "began with 1000 tokens"));
    }

    #[test]
    fn two_rounds_with_retention_saw_the_first_reuse_only() {
        let mut two = record(ProbeKind::Single, &[TurnVerdict::Cold, TurnVerdict::Ok]);
        assert!(!said(&two, "first-reuse"));
        two.retention_tokens = 13_056;
        assert!(said(&two, "first-reuse"));
    }

    #[test]
    fn how_far_a_block_can_be_trusted_is_said() {
        let mut run = record(ProbeKind::Single, &[TurnVerdict::Cold, TurnVerdict::Ok]);
        assert!(!said(&run, "--block N"));
        run.block_source = BlockSource::Inferred;
        run.engine
            .offer("block_size", Fact::new(128, FactSource::Flag));
        assert!(said(&run, "may be a multiple of the real one"));
        assert!(said(&run, "--block-size 128"));
        run.block_source = BlockSource::Fallback;
        run.block_tokens = None;
        assert!(said(&run, "shorter than about ten blocks"));
    }

    #[test]
    fn what_was_not_cold_makes_the_run_invalid() {
        let run = record(ProbeKind::Single, &[TurnVerdict::NotCold]);
        assert!(said(&run, "the run is invalid"));
        assert_eq!(run.failures(), ["A round 1 NOT-COLD"]);
    }
}

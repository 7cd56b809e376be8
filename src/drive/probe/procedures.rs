//! The four probes, step by step.

use super::ProbeEvent;
use super::prober::{Arm, Prober};
use super::script;
use super::sender::Stop;
use crate::probe::{
    Design, DoseCase, DoseRun, DoseVerdict, Doses, KneeSearch, NeedleCase, NeedleRun,
    NeedleVerdict, RequestKind, dose_limit, judge_doses, judge_needles, pass_phrase,
};

/// What a knee search begins with, as a multiple of its resolution.
const FIRST_DOSE_RESOLUTIONS: u64 = 4;

impl Prober<'_> {
    /// Carries out `design`.
    pub(super) async fn carry_out(&mut self, arm: &mut Arm, design: &Design) -> Result<(), Stop> {
        arm.pending = steps(design);
        match design {
            Design::Single { tokens, turns } => self.single(arm, *tokens, *turns).await,
            Design::Alternation {
                tokens,
                rounds,
                noise,
                noise_tokens,
            } => {
                let noise = (*noise, *noise_tokens);
                self.alternation(arm, *tokens, *rounds, noise).await
            }
            Design::Dose { tokens, doses } => self.doses(arm, *tokens, doses).await,
            Design::Needle {
                tokens,
                depths,
                interleave_tokens,
            } => self.needles(arm, *tokens, depths, *interleave_tokens).await,
        }
    }

    async fn single(&mut self, arm: &mut Arm, tokens: u64, turns: u32) -> Result<(), Stop> {
        let (mut conversation, ..) = self.open(arm, "A", tokens, None).await?;
        arm.done(&step("A", 1));
        for round in 2..=turns {
            let question = script::next_turn(round);
            self.turn(arm, &mut conversation, RequestKind::Turn, &question)
                .await?;
            arm.done(&step("A", round));
        }
        Ok(())
    }

    /// `noise` is how many unrelated requests stand between two turns, and the
    /// size of each.
    async fn alternation(
        &mut self,
        arm: &mut Arm,
        tokens: u64,
        rounds: u32,
        noise: (u32, u64),
    ) -> Result<(), Stop> {
        let mut conversations = Vec::with_capacity(2);
        for round in 1..=rounds {
            for (index, side) in ["A", "B"].into_iter().enumerate() {
                if round > 1 || index > 0 {
                    self.noise(arm, noise).await?;
                }
                match conversations.get_mut(index) {
                    None => conversations.push(self.open(arm, side, tokens, None).await?.0),
                    Some(conversation) => {
                        let question = script::next_turn(round);
                        self.turn(arm, conversation, RequestKind::Turn, &question)
                            .await?;
                    }
                }
                arm.done(&step(side, round));
            }
        }
        Ok(())
    }

    async fn noise(&mut self, arm: &mut Arm, (count, tokens): (u32, u64)) -> Result<(), Stop> {
        for _ in 0..count {
            self.one_off(arm, RequestKind::Noise, "noise", tokens)
                .await?;
        }
        Ok(())
    }

    async fn doses(&mut self, arm: &mut Arm, tokens: u64, doses: &Doses) -> Result<(), Stop> {
        match doses {
            Doses::Listed(doses) => {
                for (index, dose) in doses.iter().enumerate() {
                    self.dose(arm, tokens, *dose).await?;
                    arm.done(&dose_step(index, *dose));
                }
            }
            Doses::FindKnee {
                resolution,
                repeats,
            } => {
                let limit = dose_limit(self.context_tokens);
                let start = resolution.saturating_mul(FIRST_DOSE_RESOLUTIONS);
                let start = start.max(crate::probe::SIZE_TOKENS_MIN);
                let mut search = KneeSearch::new(start, limit, *resolution, *repeats);
                arm.search = Some(search.clone());
                while let Some(dose) = search.next_dose() {
                    let verdict = self.dose(arm, tokens, dose).await?;
                    search.observe(dose, verdict);
                }
                arm.done(KNEE_STEP);
            }
        }
        Ok(())
    }

    /// A fresh conversation, one request of `dose_tokens`, and the next turn.
    async fn dose(
        &mut self,
        arm: &mut Arm,
        tokens: u64,
        dose_tokens: u64,
    ) -> Result<DoseVerdict, Stop> {
        let case = arm.doses.len() + 1;
        let side = DoseCase::side(dose_tokens, case);
        let (mut conversation, ..) = self.open(arm, &side, tokens, None).await?;
        let measured_tokens = match dose_tokens {
            0 => 0,
            _ => {
                self.one_off(arm, RequestKind::Dose, &side, dose_tokens)
                    .await?
            }
        };
        let question = script::next_turn(2);
        let turn = self
            .turn(arm, &mut conversation, RequestKind::Turn, &question)
            .await?;
        arm.doses.push(DoseRun {
            case: DoseCase {
                dose_tokens,
                measured_tokens,
                verdict: DoseVerdict::Undecided,
            },
            turn: turn.row,
        });
        judge_doses(&mut arm.doses, &arm.rows);
        let case = &arm.doses[case - 1].case;
        (self.watch)(ProbeEvent::Dose(case));
        Ok(case.verdict)
    }

    async fn needles(
        &mut self,
        arm: &mut Arm,
        tokens: u64,
        depths: &[f64],
        interleave_tokens: Option<u64>,
    ) -> Result<(), Stop> {
        for (index, depth) in depths.iter().enumerate() {
            self.needle(arm, tokens, *depth, interleave_tokens).await?;
            arm.done(&needle_step(index, *depth));
        }
        Ok(())
    }

    /// A conversation about a document that holds a pass phrase, the question
    /// for it, and the same question of a cold copy.
    async fn needle(
        &mut self,
        arm: &mut Arm,
        tokens: u64,
        depth: f64,
        interleave_tokens: Option<u64>,
    ) -> Result<(), Stop> {
        let side = NeedleCase::side(depth, arm.needles.len() + 1);
        let phrase = pass_phrase(&mut self.phrases);
        let sentence = script::needle(&phrase);
        let needle = Some((depth, sentence.as_str()));
        let (mut conversation, document, _) = self.open(arm, &side, tokens, needle).await?;
        if let Some(tokens) = interleave_tokens {
            self.one_off(arm, RequestKind::Noise, &side, tokens).await?;
        }
        let kind = RequestKind::Question;
        let turn = self
            .turn(arm, &mut conversation, kind, script::QUESTION)
            .await?;
        // Without the answer that the question has got.
        let asked = &conversation.messages[..conversation.messages.len() - 1];
        let cold = self.cold_copy(arm, &side, asked, &document).await?;
        arm.needles.push(NeedleRun {
            case: NeedleCase {
                depth_ratio: depth,
                answered: script::holds(&turn.answer, &phrase),
                cold_answered: script::holds(&cold, &phrase),
                within_reuse: None,
                answer: script::shortened(&turn.answer),
                verdict: NeedleVerdict::Undecided,
            },
            turn: turn.row,
        });
        judge_needles(&mut arm.needles, &arm.rows);
        if let Some(run) = arm.needles.last() {
            (self.watch)(ProbeEvent::Needle(&run.case));
        }
        Ok(())
    }
}

/// What a knee search is called among the steps.
const KNEE_STEP: &str = "knee search";

fn step(side: &str, round: u32) -> String {
    format!("{side} round {round}")
}

fn dose_step(index: usize, dose: u64) -> String {
    format!("dose {dose} #{}", index + 1)
}

fn needle_step(index: usize, depth: f64) -> String {
    format!("needle {depth} #{}", index + 1)
}

/// All steps of `design`, by name, in order.
fn steps(design: &Design) -> Vec<String> {
    match design {
        Design::Single { turns, .. } => (1..=*turns).map(|round| step("A", round)).collect(),
        Design::Alternation { rounds, .. } => (1..=*rounds)
            .flat_map(|round| ["A", "B"].map(|side| step(side, round)))
            .collect(),
        Design::Dose {
            doses: Doses::Listed(doses),
            ..
        } => {
            let doses = doses.iter().enumerate();
            doses.map(|(index, dose)| dose_step(index, *dose)).collect()
        }
        Design::Dose { .. } => vec![KNEE_STEP.to_owned()],
        Design::Needle { depths, .. } => {
            let depths = depths.iter().enumerate();
            depths
                .map(|(index, depth)| needle_step(index, *depth))
                .collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_named_in_the_order_they_are_done() {
        let alternation = Design::Alternation {
            tokens: 1_000,
            rounds: 2,
            noise: 2,
            noise_tokens: 100,
        };
        assert_eq!(
            steps(&alternation),
            ["A round 1", "B round 1", "A round 2", "B round 2"]
        );
        let doses = Design::Dose {
            tokens: 1_000,
            doses: Doses::Listed(vec![0, 500, 500]),
        };
        assert_eq!(steps(&doses), ["dose 0 #1", "dose 500 #2", "dose 500 #3"]);
    }
}

//! What counts as a reset: the server's word, then a canary that was cached
//! before and must be found nowhere after.

use pcload::drive::phases::{PhaseError, PhaseOptions, Proof, ResetOutcome, ResetReport, Session};
use pcload::service::ControlSettings;

use crate::server::{Server, State};
use crate::{codes, impatience, options, patience, settings};

async fn reset_with(
    ranks: u32,
    assume_empty_cache: bool,
    turn: impl FnOnce(&mut State),
) -> Result<ResetReport, PhaseError> {
    let server = Server::with(ranks as usize, turn).await;
    let refuses_for_good = server.state().resets.len() == 1 && !server.state().resets[0].2;
    let options = PhaseOptions {
        assume_empty_cache,
        patience: if refuses_for_good {
            impatience()
        } else {
            patience()
        },
        ..options()
    };
    let mut session = Session::new(settings(&server, ranks), options).unwrap();
    session.precheck().await.unwrap();
    session.reset().await
}

type Turn = fn(&mut State);

const TRUE: (u16, &str, bool) = (200, "{\"success\":true}", true);
const FALSE: (u16, &str, bool) = (200, "{\"success\":false}", false);

/// (a), (b), (c), (e): vllm-project/vllm#12284, llm-d/llm-d-benchmark#1918,
/// sgl-project/sglang#33663.
#[tokio::test]
async fn a_reset_that_is_done_and_proved_is_accepted() {
    let rows: [(&str, Turn, usize); 5] = [
        ("success true", |state| state.resets = [TRUE].into(), 1),
        (
            "empty body",
            |state| state.resets = [(200, "", true)].into(),
            1,
        ),
        (
            "refused three times, then done",
            |state| state.resets = [FALSE, FALSE, FALSE, TRUE].into(),
            4,
        ),
        (
            "400 while not idle, then done",
            |state| state.resets = [(400, "", false), (200, "", true)].into(),
            2,
        ),
        (
            "a second tier that is reset too",
            |state| state.has_external_tier = true,
            1,
        ),
    ];
    for (name, turn, attempts) in rows {
        for ranks in [1, 2] {
            let report = reset_with(ranks, false, turn).await.unwrap();
            assert_eq!(report.attempts.len(), attempts, "{name}");
            assert_eq!(report.outcome, ResetOutcome::Reset, "{name}");
            assert_eq!(report.proof, Proof::Cold, "{name}");
            assert_eq!(report.canaries.len(), ranks as usize, "{name}");
            assert!(report.warnings.is_empty(), "{name}: {:?}", report.warnings);
        }
    }
}

/// (d), (f), (g), (h): vllm-project/vllm#57727 for the second tier, a server
/// without dev mode for the 404.
const FAILURES: [(&str, Turn, &str); 6] = [
    (
        "refused for the whole time",
        |state| state.resets = [FALSE].into(),
        "RESET_REFUSED",
    ),
    (
        "not there",
        |state| state.resets = [(404, "{\"detail\":\"Not Found\"}", false)].into(),
        "RESET_UNAVAILABLE",
    ),
    (
        "a second tier that stays warm",
        |state| {
            state.has_external_tier = true;
            state.resets_external_tier = false;
        },
        "NOT_COLD",
    ),
    (
        "says so and does nothing",
        |state| state.resets = [(200, "{\"success\":true}", false)].into(),
        "NOT_COLD",
    ),
    (
        "says nothing and does nothing",
        |state| state.resets = [(200, "", false)].into(),
        "NOT_COLD",
    ),
    (
        "server error",
        |state| state.resets = [(500, "", false)].into(),
        "RESET_REFUSED",
    ),
];

#[tokio::test]
async fn a_reset_that_fails_or_is_disproved_stops_the_run() {
    for (name, turn, code) in FAILURES {
        let error = reset_with(2, false, turn).await.unwrap_err();
        assert_eq!(error.code, code, "{name}: {error}");
        assert!(error.hint.is_some(), "{name}");
    }
}

#[tokio::test]
async fn assumed_emptiness_is_a_warning_with_its_reason() {
    for (name, turn, code) in FAILURES {
        let report = reset_with(1, true, turn).await.unwrap();
        assert_eq!(report.outcome, ResetOutcome::Assumed, "{name}");
        assert_eq!(codes(&report.warnings), ["ASSUME_EMPTY_CACHE"], "{name}");
        assert_eq!(
            report.warnings[0].message,
            "reset failed; continuing by explicit configuration"
        );
        assert_eq!(report.failure.unwrap().code, code, "{name}");
        assert!(!report.attempts.is_empty(), "{name}");
    }
}

#[tokio::test]
async fn messages_name_the_cause() {
    let message = |(_, turn, _): (&str, Turn, &str)| async move {
        let error = reset_with(1, false, turn).await.unwrap_err();
        format!("{error} {}", error.hint.as_ref().unwrap())
    };
    assert!(message(FAILURES[0]).await.contains("success false"));
    assert!(
        message(FAILURES[1])
            .await
            .contains("VLLM_SERVER_DEV_MODE=1")
    );
    assert!(
        message(FAILURES[2])
            .await
            .contains("external cache tier is still warm")
    );
    assert!(!message(FAILURES[3]).await.contains("external cache tier"));
}

#[tokio::test]
async fn tiers_are_asked_for_and_counters_alone_can_disprove() {
    // No cached tokens in usage: the hits tell.
    let report = reset_with(1, false, |state| state.reports_cached = false)
        .await
        .unwrap();
    assert_eq!(report.proof, Proof::Cold);
    let error = reset_with(1, false, |state| {
        state.reports_cached = false;
        state.has_external_tier = true;
        state.resets_external_tier = false;
    })
    .await
    .unwrap_err();
    assert_eq!(error.code, "NOT_COLD");
}

#[tokio::test]
async fn a_canary_that_was_never_cached_proves_nothing() {
    let report = reset_with(1, false, |state| state.caches = false)
        .await
        .unwrap();
    assert_eq!(report.proof, Proof::Unproven);
    assert_eq!(codes(&report.warnings), ["RESET_UNPROVEN"]);
    assert!(report.warnings[0].message.contains("was not cached before"));
}

async fn unconfigured(options: PhaseOptions, honors_salt: bool) -> Result<ResetReport, PhaseError> {
    let server = Server::with(2, |state| state.honors_salt = honors_salt).await;
    let settings = ControlSettings {
        reset_url: None,
        cache_salt: options
            .isolated_by_salt
            .then(|| "salt-of-this-run".to_owned()),
        ..settings(&server, 2)
    };
    let mut session = Session::new(settings, options).unwrap();
    session.precheck().await.unwrap();
    session.reset().await
}

#[tokio::test]
async fn without_a_reset_url_emptiness_must_be_assumed() {
    let error = unconfigured(options(), true).await.unwrap_err();
    assert_eq!(error.code, "RESET_UNAVAILABLE");
    assert_eq!(error.message, "reset_url is not configured");
    let assume = PhaseOptions {
        assume_empty_cache: true,
        ..options()
    };
    let report = unconfigured(assume, true).await.unwrap();
    assert_eq!(report.outcome, ResetOutcome::Assumed);
    assert_eq!(report.warnings[0].message, "reset_url is not configured");
    assert_eq!(report.proof, Proof::Skipped);
}

#[tokio::test]
async fn a_salt_of_the_run_isolates_and_is_proved_too() {
    let isolated = PhaseOptions {
        isolated_by_salt: true,
        ..options()
    };
    let report = unconfigured(isolated.clone(), true).await.unwrap();
    assert_eq!(report.outcome, ResetOutcome::IsolatedBySalt);
    assert_eq!(report.proof, Proof::Cold);
    let error = unconfigured(isolated, false).await.unwrap_err();
    assert_eq!(error.code, "NOT_COLD");
}

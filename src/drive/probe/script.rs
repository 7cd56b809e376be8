//! What the probes say to the model, word for word.

/// Ends the first turn of every conversation.
pub(super) const OPENING: &str = "\n\nIn one short sentence, say what this file is about.";

/// Says what the pass phrase is, within a document.
pub(super) fn needle(phrase: &str) -> String {
    format!("The pass phrase is {phrase}.")
}

/// Asks for the pass phrase and for nothing else.
pub(super) const QUESTION: &str = "What is the pass phrase? Answer with the pass phrase alone.";

/// Asks for one short sentence in turn `round`; no two rounds ask the same.
pub(super) fn next_turn(round: u32) -> String {
    format!("Name thing number {round} of this file and where it is, in one short sentence.")
}

/// An answer as it joins its conversation: an empty one is no message to some
/// templates.
pub(super) fn answer(content: &str) -> &str {
    if content.trim().is_empty() {
        "I cannot say."
    } else {
        content
    }
}

/// Whether an answer holds the phrase, in whatever case and dress.
pub(super) fn holds(answer: &str, phrase: &str) -> bool {
    answer
        .to_ascii_lowercase()
        .contains(&phrase.to_ascii_lowercase())
}

/// Most characters of an answer that a record keeps.
const ANSWER_CHARS_MAX: usize = 120;

/// An answer as a record keeps it.
pub(super) fn shortened(answer: &str) -> String {
    let words = answer.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(ANSWER_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_right_in_any_dress() {
        assert!(holds("It is **Amber-Cobalt-4821**.", "amber-cobalt-4821"));
        assert!(!holds("amber-cobalt-482", "amber-cobalt-4821"));
        assert_eq!(answer(" \n"), "I cannot say.");
        assert_eq!(shortened("a\n b"), "a b");
        assert_eq!(
            shortened(&"é".repeat(300)).chars().count(),
            ANSWER_CHARS_MAX + 1
        );
    }

    #[test]
    fn only_the_question_asks_for_the_phrase() {
        assert!(!OPENING.contains("pass phrase"));
        assert!(!next_turn(2).contains("pass phrase"));
        assert_ne!(next_turn(2), next_turn(3));
    }
}

//! The model that answers. The rule: when the last user message asks for the
//! *pass phrase* (or *passphrase*; its last mention is not "the pass phrase
//! is …"), the answer is what follows the last "pass phrase is" of that
//! message or of those before it, up to the end of the sentence. It knows text
//! only, neither cache nor tokens.

/// Phrase of a prompt, if its last message asks for one and it holds one.
pub(super) fn asked(messages: &[(String, String)]) -> Option<String> {
    let (_, question) = messages.iter().rev().find(|(role, _)| role == "user")?;
    let question = lower(question);
    let after = ["pass phrase", "passphrase"]
        .iter()
        .filter_map(|name| question.rfind(name).map(|at| at + name.len()))
        .max()?;
    if question[after..].starts_with(" is") {
        return None;
    }
    messages
        .iter()
        .rev()
        .filter(|(role, _)| role != "assistant")
        .find_map(|(_, text)| hidden(text))
}

/// ASCII lower case keeps every byte offset.
fn lower(text: &str) -> String {
    text.to_ascii_lowercase()
}

/// What follows the last "pass phrase is" of `text`, to the sentence's end.
fn hidden(text: &str) -> Option<String> {
    const MARKS: [&str; 2] = ["pass phrase is", "passphrase is"];
    let low = lower(text);
    let start = MARKS
        .iter()
        .filter_map(|mark| low.rfind(mark).map(|at| at + mark.len()))
        .max()?;
    let rest = text[start..].trim_start_matches([':', ' ', '"', '\'', '`', '*']);
    let end = rest
        .char_indices()
        .find(|&(at, char)| match char {
            '\n' | '"' | '`' | '*' | '!' | '?' | ';' => true,
            // A full stop inside a phrase (`v1.2`) does not end it.
            '.' => rest[at + 1..]
                .chars()
                .next()
                .is_none_or(char::is_whitespace),
            _ => false,
        })
        .map_or(rest.len(), |(at, _)| at);
    let phrase = rest[..end].trim_end();
    (!phrase.is_empty()).then(|| phrase.to_owned())
}

/// What a model says whose state belongs to another prompt: that prompt's
/// phrase, or, if it has seen no other, some phrase of nobody's.
pub(super) fn stale(own: &str, other: Option<&str>) -> String {
    const NOBODYS: [&str; 2] = ["grey-heron-0017", "pale-badger-0018"];
    match other {
        Some(other) if other != own => other.to_owned(),
        _ => NOBODYS[usize::from(own == NOBODYS[0])].to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(messages: &[(&str, &str)], expected: Option<&str>) {
        let messages: Vec<_> = messages
            .iter()
            .map(|(role, text)| ((*role).to_owned(), (*text).to_owned()))
            .collect();
        assert_eq!(asked(&messages).as_deref(), expected, "{messages:?}");
    }

    #[test]
    fn the_phrase_is_found_wherever_it_stands() {
        let document = "Chapter one. The pass phrase is amber-otter-4821. It was late.";
        check(&[("user", document)], None);
        let with_question = format!("{document} What is the pass phrase?");
        check(&[("user", &with_question)], Some("amber-otter-4821"));
        check(
            &[
                ("user", document),
                ("assistant", "Noted."),
                ("user", "What is the pass phrase? Answer with it alone."),
            ],
            Some("amber-otter-4821"),
        );
        check(
            &[
                ("system", "The passphrase is: \"red v1.2 fox\""),
                ("user", "Passphrase?"),
            ],
            Some("red v1.2 fox"),
        );
    }

    #[test]
    fn other_questions_are_not_answered() {
        let document = "The pass phrase is amber.";
        check(&[("user", document), ("user", "Say hello.")], None);
        check(&[("user", "What is the pass phrase?")], None);
        check(&[], None);
    }

    #[test]
    fn a_stale_answer_is_never_the_right_one() {
        assert_eq!(stale("amber", Some("blue")), "blue");
        for own in ["amber", "grey-heron-0017"] {
            for other in [None, Some(own)] {
                assert_ne!(stale(own, other), own);
            }
        }
    }
}

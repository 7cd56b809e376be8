//! Documents for probes: plain sentences of a wanted length, a salt at their
//! very start so that no earlier run's prefix fits, and a pass phrase at a
//! wanted depth where one is asked for. All of it is ASCII, so that characters
//! are bytes.

use crate::rng::Stream;

const PEOPLE: &[&str] = &[
    "the harbour master",
    "a night nurse",
    "our neighbour",
    "the second clerk",
    "a young welder",
    "the bee keeper",
    "an old surveyor",
    "the ferry pilot",
    "a quiet baker",
    "the map seller",
];
const DEEDS: &[&str] = &[
    "counts", "repairs", "borrows", "weighs", "paints", "sorts", "carries", "measures", "wraps",
    "labels",
];
const THINGS: &[&str] = &[
    "copper kettles",
    "wooden crates",
    "paper lanterns",
    "river stones",
    "brass hinges",
    "linen sacks",
    "clay jars",
    "iron gates",
    "cork floats",
    "glass bottles",
];
const PLACES: &[&str] = &[
    "behind the mill",
    "near the old bridge",
    "in the cold store",
    "under the station roof",
    "beside the canal",
    "on the upper deck",
    "at the market gate",
    "along the north wall",
];
const WORDS: &[&str] = &[
    "amber", "cobalt", "walnut", "falcon", "harvest", "lantern", "meadow", "orchid", "pepper",
    "quartz", "saddle", "timber", "velvet", "willow", "anchor", "bishop",
];

/// A salted text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The text; its first line is the salt.
    pub text: String,
}

/// Writes documents from one stream of randomness.
#[derive(Clone, Debug)]
pub struct DocumentWriter {
    stream: Stream,
    salt: String,
    documents: u32,
    /// People, deeds, things and places.
    decks: [Deck; 4],
}

/// Words that are dealt like cards, each once before any comes again: equally
/// long texts then have nearly equally many tokens.
#[derive(Clone, Debug)]
struct Deck {
    words: &'static [&'static str],
    left: Vec<&'static str>,
}

impl Deck {
    fn new(words: &'static [&'static str]) -> Self {
        Self {
            words,
            left: Vec::new(),
        }
    }

    fn deal(&mut self, stream: &mut Stream) -> &'static str {
        if self.left.is_empty() {
            self.left = self.words.to_vec();
            stream.shuffle(&mut self.left);
        }
        self.left.pop().expect("a deck has words")
    }
}

impl DocumentWriter {
    /// A writer whose documents all begin with `salt` (unique to the run) and
    /// their own number.
    pub fn new(salt: impl Into<String>, stream: Stream) -> Self {
        Self {
            stream,
            salt: salt.into(),
            documents: 0,
            decks: [PEOPLE, DEEDS, THINGS, PLACES].map(Deck::new),
        }
    }

    /// A document of exactly `characters` (or its salt and a needle, if they
    /// are longer), unlike every other of this writer from its first word on.
    pub fn write(&mut self, characters: usize) -> Document {
        self.write_with(characters, None)
    }

    /// The same with `sentence` standing at `depth` (0..=1) of the text.
    pub fn write_with(&mut self, characters: usize, sentence: Option<(f64, &str)>) -> Document {
        let mut text = self.salt_line();
        let mut shortest = text.len();
        let mut pending = sentence;
        loop {
            if let Some((depth, inserted)) = pending
                && text.len() >= needle_start(depth, characters)
            {
                text.truncate(needle_start(depth, characters).max(shortest));
                text.extend([" ", inserted, " "]);
                shortest = text.len();
                pending = None;
            }
            if text.len() >= characters {
                break;
            }
            self.sentence(&mut text);
        }
        text.truncate(characters.max(shortest));
        Document { text }
    }

    /// `document` under a salt of its own: as long, but no prefix of it fits
    /// what was cached before.
    pub fn salted_anew(&mut self, document: &Document) -> Document {
        let rest = document.text.split_once('\n').map_or("", |(_, rest)| rest);
        let mut text = self.salt_line();
        text.push_str(rest);
        Document { text }
    }

    /// The first line. The number stands in front: two salts of one run must
    /// not share even their first tokens.
    fn salt_line(&mut self) -> String {
        self.documents += 1;
        format!("{:05}-{} is this file.\n", self.documents, self.salt)
    }

    fn sentence(&mut self, text: &mut String) {
        // As many digits each time.
        let number = self.stream.between(100, 999);
        let stream = &mut self.stream;
        let [person, deed, thing, place] = self.decks.each_mut().map(|deck| deck.deal(stream));
        let (first, rest) = person.split_at(1);
        text.push_str(&first.to_uppercase());
        text.push_str(rest);
        text.extend([
            " ",
            deed,
            " ",
            &number.to_string(),
            " ",
            thing,
            " ",
            place,
            ". ",
        ]);
    }
}

/// The character at which the needle begins.
fn needle_start(depth: f64, characters: usize) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a length is a length"
    )]
    let start = (depth.clamp(0.0, 1.0) * characters as f64) as usize;
    start
}

/// A pass phrase that no text holds by chance: two words and four digits.
pub fn pass_phrase(stream: &mut Stream) -> String {
    let mut word = || {
        let index = stream.below(WORDS.len() as u64);
        WORDS[usize::try_from(index).expect("below a list's length")]
    };
    let (first, second) = (word(), word());
    format!("{first}-{second}-{}", stream.between(1_000, 9_999))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Seed;

    fn writer() -> DocumentWriter {
        DocumentWriter::new("r1", Seed::from(1).stream("documents"))
    }

    #[test]
    fn documents_differ_from_their_first_word_on() {
        let mut writer = writer();
        let (first, second) = (writer.write(2_000), writer.write(2_000));
        assert!(first.text.starts_with("00001-r1 "));
        assert!(second.text.starts_with("00002-r1 "));
        for document in [first, second] {
            assert_eq!(document.text.len(), 2_000);
            assert!(document.text.is_ascii());
        }
    }

    #[test]
    fn a_needle_stands_at_its_depth_once_and_whole() {
        for depth in [0.0, 0.05, 0.5, 0.95, 1.0] {
            let text = writer().write_with(10_000, Some((depth, "NEEDLE."))).text;
            assert_eq!(text.matches(" NEEDLE. ").count(), 1, "{depth}");
            let at = text.find("NEEDLE.").unwrap() as f64 / 10_000.0;
            assert!((at - depth).abs() < 0.005, "{depth}: {at}");
            assert!((10_000..10_010).contains(&text.len()));
        }
    }

    #[test]
    fn a_copy_differs_in_its_salt_alone() {
        let mut writer = writer();
        let document = writer.write_with(2_000, Some((0.5, "NEEDLE.")));
        let copy = writer.salted_anew(&document);
        assert_eq!(copy.text.len(), document.text.len());
        assert_eq!(copy.text[8..], document.text[8..]);
        assert_ne!(copy.text[..5], document.text[..5]);
    }

    #[test]
    fn pass_phrases_are_not_repeated() {
        let mut stream = Seed::from(1).stream("needle");
        assert_ne!(pass_phrase(&mut stream), pass_phrase(&mut stream));
    }
}

//! Documents for probes: plain sentences of a wanted length, a salt at their
//! very start so that no earlier run's prefix fits, and a pass phrase at a
//! wanted depth where one is asked for.

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
}

impl DocumentWriter {
    /// A writer whose documents all begin with `salt` (unique to the run) and
    /// their own number.
    pub fn new(salt: impl Into<String>, stream: Stream) -> Self {
        Self {
            stream,
            salt: salt.into(),
            documents: 0,
        }
    }

    /// A document of at least `characters` (by less than one sentence more),
    /// unlike every other of this writer from its first line on.
    pub fn write(&mut self, characters: usize) -> Document {
        self.write_with(characters, None)
    }

    /// The same with `sentence` standing at `depth` (0..=1) of the text.
    pub fn write_with(&mut self, characters: usize, sentence: Option<(f64, &str)>) -> Document {
        self.documents += 1;
        let mut text = format!("File {}-{}.\n", self.salt, self.documents);
        let mut pending = sentence;
        loop {
            if let Some((depth, inserted)) = pending
                && text.len() as f64 >= depth * characters as f64
            {
                text.push_str(inserted);
                text.push(' ');
                pending = None;
            }
            if text.len() >= characters {
                break;
            }
            self.sentence(&mut text);
        }
        Document { text }
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        let index = self.stream.below(list.len() as u64);
        list[usize::try_from(index).expect("below a list's length")]
    }

    fn sentence(&mut self, text: &mut String) {
        let number = self.stream.between(2, 990);
        let person = self.pick(PEOPLE);
        let (first, rest) = person.split_at(1);
        text.push_str(&first.to_uppercase());
        text.push_str(rest);
        let deed = self.pick(DEEDS);
        let thing = self.pick(THINGS);
        let place = self.pick(PLACES);
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
    fn documents_differ_from_their_first_line_on() {
        let mut writer = writer();
        let (first, second) = (writer.write(2_000), writer.write(2_000));
        assert!(first.text.starts_with("File r1-1.\n"));
        assert!(second.text.starts_with("File r1-2.\n"));
        for document in [first, second] {
            assert!((2_000..2_200).contains(&document.text.len()));
        }
    }

    #[test]
    fn a_needle_stands_at_its_depth_once() {
        for depth in [0.05, 0.5, 0.95] {
            let text = writer().write_with(10_000, Some((depth, "NEEDLE."))).text;
            assert_eq!(text.matches("NEEDLE.").count(), 1);
            let at = text.find("NEEDLE.").unwrap() as f64 / 10_000.0;
            assert!((at - depth).abs() < 0.02, "{depth}: {at}");
        }
    }

    #[test]
    fn pass_phrases_are_not_repeated() {
        let mut stream = Seed::from(1).stream("needle");
        assert_ne!(pass_phrase(&mut stream), pass_phrase(&mut stream));
    }
}

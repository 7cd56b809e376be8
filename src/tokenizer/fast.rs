//! The release candidate of the `tokenizers` library, which encodes some ten
//! times as fast, behind the stable one that is the judge: a tokenizer for which
//! the two do not agree is not used. It refuses to know files.

use tokenizers_next::pipeline::{EncodeOptions, Override, PipelineToken, PipelineTokenizer};

/// Texts on which encoders are likely to part: white space of all kinds, runs of
/// digits, contractions, other scripts, combining marks, emoji, bytes.
const HARD_TEXTS: [&str; 12] = [
    "",
    " ",
    "  two  spaces \t\ttabs\r\n\r\nlines \n ends \u{3000}\u{a0}\u{200b}",
    "don't they'll WE'RE it's I'M 'S ''ve",
    "1 12 123 1234 12345,678.90 ½ ¾ ² ③ ٣ 一二三",
    "naïve café cafe\u{301} Zu\u{308}rich ﬁ Å A\u{30a} Z\u{351}\u{36b}a\u{321}\u{34d}",
    "漢字とかな、カタカナ。한국어 텍스트 中文，标点！",
    "עברית ו־ערבית: مرحباً بالعالم، हिन्दी में मराठी แม่ซื้อส้ม",
    "👩‍👩‍👧‍👦👍🏽🏳️‍🌈🇩🇪❤️ ☃ 𝔉𝔯𝔞𝔨𝔱𝔲𝔯 𓀀",
    "def f(x):\n    return {'a': x**2 != 0}  # ok\n\tif (a&&b) { c->d(); }",
    "Donaudampfschifffahrtsgesellschaftskapitän aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "<s></s> ▁under▁ \u{fffd} <0xE2> <|endoftext|> [INST] http://x.y/?q=%20&z=_-~",
];

/// Ids of one text that is made of the vocabulary's own tokens.
const CHUNK_IDS: u32 = 64;

/// Such texts; they are taken from places all over the vocabulary.
const CHUNKS: u32 = 256;

/// An encoder that was found to agree with the judge.
pub(super) struct Fast {
    inner: PipelineTokenizer,
    options: EncodeOptions,
}

impl Fast {
    /// Reads the bytes of a `tokenizer.json`; `None` where the library cannot, or
    /// where it gives other ids than `judge` for one of the texts it is tried on.
    pub(super) fn agreeing_with(judge: &tokenizers::Tokenizer, bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let canonical = tokenizers_next::canonicalize_str(text).ok()?;
        let mut options = EncodeOptions::no_specials();
        options.truncation = Override::Off;
        options.padding = Override::Off;
        let fast = Self {
            inner: tokenizers_next::from_json(&canonical).ok()?,
            options,
        };
        let vocab_size = u32::try_from(judge.get_vocab_size(true)).ok()?;
        let own = (0..CHUNKS).filter_map(|chunk| {
            let first = vocab_size / CHUNKS * chunk;
            let ids: Vec<u32> = (first..vocab_size.min(first + CHUNK_IDS)).collect();
            judge.decode(&ids, false).ok()
        });
        let texts = HARD_TEXTS.into_iter().map(str::to_owned).chain(own);
        let mut agree = texts.map(|text| {
            let expected = judge.encode_fast(text.as_str(), false).ok();
            fast.encode(&text).as_deref() == expected.as_ref().map(tokenizers::Encoding::get_ids)
        });
        agree.all(|same| same).then_some(fast)
    }

    /// Ids of `text`; `None` where the library refuses.
    pub(super) fn encode(&self, text: &str) -> Option<Vec<u32>> {
        let mut tokens = Vec::with_capacity(text.len() / 3);
        self.inner
            .encode_into(text, &self.options, &mut tokens)
            .ok()?;
        Some(tokens.into_iter().map(PipelineToken::id).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTE_LEVEL: &[u8] = include_bytes!("../../tests/data/prompts/tiny-bytelevel.json");
    /// Splits by a pattern that the release candidate does not know.
    const DEMO: &[u8] = include_bytes!("../../assets/demo/tokenizer/tokenizer.json");

    fn judge(bytes: &[u8]) -> tokenizers::Tokenizer {
        tokenizers::Tokenizer::from_bytes(bytes).unwrap()
    }

    #[test]
    fn an_encoder_that_agrees_is_used() {
        let judge = judge(BYTE_LEVEL);
        let fast = Fast::agreeing_with(&judge, BYTE_LEVEL).unwrap();
        let text = "The dairy keeps 265 shells, ½ of them “naïve”.";
        let expected = judge.encode(text, false).unwrap();
        assert_eq!(fast.encode(text).unwrap(), expected.get_ids());
    }

    #[test]
    fn an_encoder_that_differs_or_refuses_is_not() {
        assert!(Fast::agreeing_with(&judge(DEMO), BYTE_LEVEL).is_none());
        assert!(Fast::agreeing_with(&judge(DEMO), DEMO).is_none());
        assert!(Fast::agreeing_with(&judge(DEMO), b"{}").is_none());
    }
}

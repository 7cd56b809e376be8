//! The colors of drawings, and the keys that say what they mean.

use plotters::style::RGBColor;
use serde::Serialize;

/// The page's text color.
pub(super) const INK: RGBColor = RGBColor(0x1C, 0x21, 0x26);
/// The page's grid color.
pub(super) const GRID: RGBColor = RGBColor(0xD9, 0xDE, 0xE3);
/// Told apart by their lightness too.
const PALETTE: [(RGBColor, &str); 5] = [
    (RGBColor(0x2B, 0x6C, 0xB0), "one"),
    (RGBColor(0xC0, 0x56, 0x21), "two"),
    (RGBColor(0x2F, 0x85, 0x5A), "three"),
    (RGBColor(0x80, 0x5A, 0xD5), "four"),
    (RGBColor(0x8A, 0x6D, 0x1B), "five"),
];
/// What a color stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Paint {
    /// The nth series, from 0.
    Series(usize),
    /// As it should be.
    Good,
    /// In doubt.
    Warn,
    /// As it should not be.
    Bad,
    /// In the background.
    #[default]
    Soft,
    /// As dark as the text.
    Ink,
}

impl Paint {
    pub(super) fn color(self) -> RGBColor {
        match self {
            Self::Series(place) => PALETTE[place % PALETTE.len()].0,
            Self::Good => RGBColor(0x1D, 0x7A, 0x43),
            Self::Warn => RGBColor(0x9A, 0x62, 0x00),
            Self::Bad => RGBColor(0xB3, 0x26, 0x1E),
            Self::Soft => RGBColor(0x5B, 0x66, 0x70),
            Self::Ink => INK,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Series(place) => PALETTE[place % PALETTE.len()].1,
            Self::Good => "good",
            Self::Warn => "warn",
            Self::Bad => "bad",
            Self::Soft => "soft",
            Self::Ink => "ink",
        }
    }
}

/// What a color of a drawing means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Key {
    pub(super) name: String,
    class: &'static str,
}

impl Key {
    pub(super) fn new(name: impl Into<String>, paint: Paint) -> Self {
        Self {
            name: name.into(),
            class: paint.class(),
        }
    }
}

//! Texts for encoders, and the tokens of one.

/// A text, or two, with the special tokens of the tokenizer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MarkedText {
    /// The ids of the tokens.
    pub ids: Vec<u32>,
    /// The type of each token: that of the second text is 1 for most tokenizers.
    pub types: Vec<u32>,
    /// The number of the word that each token is of, if the text was given in words.
    pub words: Vec<Option<u32>>,
    /// The number of tokens of the texts themselves.
    pub own: usize,
}

/// A text for an encoder.
#[derive(Debug, Clone, Copy)]
pub enum TextToMark<'a> {
    /// A text.
    One(&'a str),
    /// Two texts.
    Two(&'a str, &'a str),
    /// The words of a text.
    Words(&'a [String]),
}

/// Returns the numbers of tokens that two texts keep, which are at most `room` together.
pub(super) fn cut_longest(lengths: [usize; 2], room: usize) -> [usize; 2] {
    let [first, second] = lengths;
    if first + second <= room {
        return lengths;
    }
    // The shorter one is whole unless both are longer than half.
    let shorter = first.min(second).min(room / 2);
    if first <= second { [shorter, room - shorter] } else { [room - shorter, shorter] }
}

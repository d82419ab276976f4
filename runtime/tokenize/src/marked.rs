//! Texts as the input of an encoder: with the special tokens of the tokenizer, such as `[CLS]` and `[SEP]`.

use super::marked_text::{MarkedText, TextToMark, cut_longest};
use super::{TokenizeError, Tokenizer};

impl Tokenizer {
    /// Returns the ids of a text with the special tokens that the tokenizer adds: `longest` in all. A longer text is
    /// cut at its end, and of two texts the longer one, as `longest_first` of `transformers` does.
    ///
    /// # Errors
    /// A tokenizer of random tokens, a text that it has no token for, and special tokens that leave no room; in a
    /// message about the text.
    pub fn encode_marked(
        &self,
        text: TextToMark<'_>,
        longest: usize,
    ) -> Result<MarkedText, String> {
        let no_room = |added: usize| {
            format!(
                "a row of {longest} tokens has no room for a text beside {added} special tokens"
            )
        };
        let file = match self {
            Tokenizer::Bytes if longest == 0 => return Err(no_room(0)),
            Tokenizer::Bytes => return Ok(marked_bytes(text, longest)),
            Tokenizer::File(file) => file,
        };
        if let Some((setting, value)) = file.randomness() {
            let tokenizer = file.name().to_owned();
            return Err(TokenizeError::Random { tokenizer, setting, value }.to_string());
        }
        let added = file.added_tokens(matches!(text, TextToMark::Two(..)));
        let room = longest.checked_sub(added).filter(|room| *room > 0);
        file.encode_marked(text, room.ok_or_else(|| no_room(added))?)
    }

    /// Returns the ids of special tokens, which are no part of a text.
    pub fn special_ids(&self) -> Vec<u32> {
        match self {
            Tokenizer::Bytes => Vec::new(),
            Tokenizer::File(file) => file.special_ids(),
        }
    }

    /// Returns the token that stands for a masked one, if the tokenizer states it: by a `tokenizer_config.json` beside
    /// the file, or else by one of the common names, `[MASK]` and `<mask>`.
    pub fn mask_token(&self) -> Option<u32> {
        match self {
            Tokenizer::Bytes => None,
            Tokenizer::File(file) => file.mask_token(),
        }
    }
}

fn marked_bytes(text: TextToMark<'_>, longest: usize) -> MarkedText {
    let of_words;
    let [first, second] = match text {
        TextToMark::One(text) => [text, ""],
        TextToMark::Two(first, second) => [first, second],
        TextToMark::Words(words) => {
            of_words = words.concat();
            [&*of_words, ""]
        }
    };
    let kept = cut_longest([first.len(), second.len()], longest);
    let parts = [first, second].into_iter().zip(kept).zip([0, 1]);
    let mut marked = MarkedText::default();
    for ((text, kept), kind) in parts {
        marked.ids.extend(text.bytes().take(kept).map(u32::from));
        marked.types.resize(marked.ids.len(), kind);
    }
    if let TextToMark::Words(words) = text {
        let of_word = |(index, word): (usize, &String)| vec![Some(index as u32); word.len()];
        marked.words = words.iter().enumerate().flat_map(of_word).take(longest).collect();
    }
    marked.own = marked.ids.len();
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_text_is_cut() {
        for (lengths, room, kept) in [
            ([3, 4], 8, [3, 4]),
            ([3, 9], 8, [3, 5]),
            ([9, 3], 8, [5, 3]),
            ([9, 9], 8, [4, 4]),
            ([9, 9], 7, [3, 4]),
            ([9, 4], 7, [4, 3]),
            ([0, 9], 7, [0, 7]),
        ] {
            assert_eq!(cut_longest(lengths, room), kept, "{lengths:?} in {room}");
        }
    }

    #[test]
    fn bytes_have_types_and_words() {
        let mark = |text, longest| Tokenizer::Bytes.encode_marked(text, longest).unwrap();
        let two = mark(TextToMark::Two("ab", "cdef"), 5);
        assert_eq!((two.ids, two.types), (vec![97, 98, 99, 100, 101], vec![0, 0, 1, 1, 1]));
        let words = ["ab".to_owned(), "c".to_owned()];
        let words = mark(TextToMark::Words(&words), 9);
        assert_eq!(words.words, [Some(0), Some(0), Some(1)]);
        assert!(Tokenizer::Bytes.encode_marked(TextToMark::One("a"), 0).is_err());
    }
}

#[cfg(all(test, feature = "tokenizers"))]
mod file_tests {
    use serde_json::json;

    use super::super::test_tokenizer::{END, tokenizer_json, write};
    use super::*;

    /// A tokenizer that puts its end around and between texts.
    fn tokenizer() -> Tokenizer {
        let part = |id: &str, type_id: u32| json!({ "Sequence": { "id": id, "type_id": type_id } });
        let end = |type_id: u32| json!({ "SpecialToken": { "id": END, "type_id": type_id } });
        let mut json = tokenizer_json();
        json["post_processor"] = json!({
            "type": "TemplateProcessing",
            "single": [end(0), part("A", 0), end(0)],
            "pair": [end(0), part("A", 0), end(0), part("B", 1), end(1)],
            "special_tokens": { END: { "id": END, "ids": [264], "tokens": [END] } },
        });
        let dir = tempfile::tempdir().unwrap();
        Tokenizer::open(&write(dir.path(), &json)).unwrap()
    }

    #[test]
    fn texts_have_special_tokens_types_and_words() {
        let tokenizer = tokenizer();
        assert_eq!(tokenizer.special_ids(), [264]);
        assert_eq!(tokenizer.mask_token(), None);
        let mark = |text, longest| tokenizer.encode_marked(text, longest).unwrap();
        // "the", " the" and " and" are a token each.
        let one = mark(TextToMark::One("the the and"), 8);
        assert_eq!((one.ids, one.own), (vec![264, 257, 258, 262, 264], 3));
        let two = mark(TextToMark::Two("the the and", "the"), 6);
        assert_eq!((two.ids, two.own), (vec![264, 257, 258, 264, 257, 264], 3));
        assert_eq!(two.types, [0, 0, 0, 0, 1, 1]);
        let words = ["the".to_owned(), "x the".to_owned()];
        let words = mark(TextToMark::Words(&words), 8);
        assert_eq!(words.ids.len(), words.words.len());
        assert_eq!(words.words, [None, Some(0), Some(1), Some(1), None]);
        let empty = mark(TextToMark::One(""), 8);
        assert_eq!((empty.ids, empty.own), (vec![264, 264], 0));
        let text = tokenizer.encode_marked(TextToMark::One("a"), 2).unwrap_err();
        assert_eq!(text, "a row of 2 tokens has no room for a text beside 2 special tokens");
    }
}

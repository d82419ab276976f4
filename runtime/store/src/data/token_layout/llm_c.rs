//! Token files of llm.c and modded-nanogpt: 256 32-bit numbers, then the ids.

use super::{Encoding, OpenedTokens, TokenLayout, number_at};

/// Bytes before the ids.
const HEADER: usize = 1024;

/// Number at the beginning, version, and encoding of the ids.
const KINDS: [(i32, i32, Encoding); 2] =
    [(20240520, 1, Encoding::U16), (20240801, 7, Encoding::U32)];

/// Determines the layout.
pub fn layout(file: &OpenedTokens<'_>) -> Result<TokenLayout, String> {
    let header = |index: usize| number_at(file.head, 4 * index).map(i32::from_le_bytes);
    let [magic, version, tokens] = [0, 1, 2].map(header);
    let kind = KINDS.iter().find(|(number, ..)| Some(*number) == magic);
    let (Some((magic, own, encoding)), Some(version), Some(tokens), true) =
        (kind, version, tokens, file.len >= HEADER)
    else {
        return Err("it is truncated in the header of llm.c, of 1024 bytes".to_owned());
    };
    if version != *own {
        return Err(format!(
            "it has version {version} of the header of llm.c with number {magic}, but only version {own} is read"
        ));
    }
    let (held, dtype) = ((file.len - HEADER) / encoding.width(), encoding.dtype());
    let is_whole = (file.len - HEADER).is_multiple_of(encoding.width());
    if usize::try_from(tokens) != Ok(held) || !is_whole {
        return Err(format!(
            "its header of llm.c states {tokens} {dtype} tokens, but {} bytes follow, which are {held}; the file is \
             truncated, or was changed",
            file.len - HEADER
        ));
    }
    Ok(TokenLayout::without_index(*encoding, HEADER..file.len))
}

#[cfg(test)]
mod tests {
    use super::super::tests::ids_of;

    fn file(header: [i32; 3], data: &[u8]) -> Vec<u8> {
        let mut bytes: Vec<u8> = header.iter().flat_map(|number| number.to_le_bytes()).collect();
        bytes.resize(1024, 0);
        [&bytes[..], data].concat()
    }

    #[test]
    fn the_header_is_skipped_and_compared() {
        let expected = Ok(vec![5, 500]);
        assert_eq!(ids_of("a.bin", &file([20240520, 1, 2], &[5, 0, 244, 1]), 1000), expected);
        let wide = file([20240801, 7, 2], &[5, 0, 0, 0, 244, 1, 0, 0]);
        assert_eq!(ids_of("a.bin", &wide, 1000), expected);
        // The content decides, not the name.
        assert_eq!(ids_of("a.u16.bin", &wide, 1000), expected);
        for (bytes, part) in [
            (file([20240520, 2, 0], &[]), "version 2 of the header"),
            (file([20240520, 1, 3], &[0; 4]), "states 3 u16 tokens, but 4 bytes follow"),
            (file([20240520, 1, 1], &[0; 3]), "states 1 u16 tokens, but 3 bytes follow"),
            (file([20240520, 1, -1], &[0; 2]), "states -1 u16 tokens"),
            (file([20240520, 1, 3], &[])[..500].to_vec(), "truncated in the header"),
            (file([20240520, 1, 0], &[]), "a.bin is empty"),
        ] {
            let text = ids_of("a.bin", &bytes, 1000).unwrap_err();
            assert!(text.contains(part), "{text}");
        }
    }
}

//! Arrays of numpy
//! (<https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>).

use super::{Encoding, OpenedTokens, TokenLayout, number_at};

/// Determines the layout of a one-dimensional array of whole numbers.
pub fn layout(file: &OpenedTokens<'_>) -> Result<TokenLayout, String> {
    let damaged = || "it is a damaged numpy array; write it again".to_owned();
    let bytes = file.head;
    let version = *bytes.get(6).ok_or_else(damaged)?;
    let (start, len): (usize, _) = match version {
        1 => (10, number_at(bytes, 8).map(|len| u16::from_le_bytes(len) as usize)),
        2 | 3 => (12, number_at(bytes, 8).map(|len| u32::from_le_bytes(len) as usize)),
        _ => {
            return Err(format!(
                "it is a numpy array of version {version}; versions 1 to 3 are read"
            ));
        }
    };
    let data = start.saturating_add(len.ok_or_else(damaged)?);
    let header = bytes.get(start..data).ok_or_else(damaged)?;
    let header = std::str::from_utf8(header).map_err(|_| damaged())?;
    let encoding = encoding_of(value_of(header, "descr").ok_or_else(damaged)?)?;
    let shape = value_of(header, "shape").ok_or_else(damaged)?;
    let sizes = shape.trim_start_matches('(').split(')').next().unwrap_or_default();
    let sizes: Vec<&str> =
        sizes.split(',').map(str::trim).filter(|size| !size.is_empty()).collect();
    let [tokens] = sizes[..] else {
        return Err(format!(
            "it is a numpy array of {} dims, ({}); write its ids as one dim: numpy.save('out.npy', array.ravel())",
            sizes.len(),
            sizes.join(", ")
        ));
    };
    let tokens: usize = tokens.parse().map_err(|_| damaged())?;
    let (held, expected) = (file.len - data, tokens.checked_mul(encoding.width()));
    if Some(held) != expected {
        return Err(format!(
            "its header states {tokens} {} ids, but {held} bytes follow; the file is truncated, or was changed",
            encoding.dtype()
        ));
    }
    Ok(TokenLayout::without_index(encoding, data..file.len))
}

/// Returns the text after a key of the header, which is a literal of Python.
fn value_of<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = header.split_once(&format!("'{key}':"))?;
    Some(rest.trim_start())
}

/// Returns the encoding for the type of an array, such as `'<u2'`.
fn encoding_of(descr: &str) -> Result<Encoding, String> {
    let fix = "write them by numpy.save('out.npy', ids.astype('uint32'))";
    let Some((name, _)) = descr.strip_prefix('\'').and_then(|rest| rest.split_once('\'')) else {
        return Err(format!("it is a numpy array of records, not of token ids; {fix}"));
    };
    match name {
        "|u1" => Ok(Encoding::U8),
        "<u2" => Ok(Encoding::U16),
        "<u4" => Ok(Encoding::U32),
        "<u8" => Ok(Encoding::U64),
        "<i2" => Ok(Encoding::I16),
        "<i4" => Ok(Encoding::I32),
        "<i8" => Ok(Encoding::I64),
        _ if name.starts_with('>') => Err(format!("its numbers ({name}) are big-endian; {fix}")),
        _ => Err(format!("its numbers ({name}) are not read as token ids; {fix}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::ids_of;
    use super::*;
    use crate::data::{DataInput, TokenFile};

    /// Creates a file of version 1.
    fn array(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        let mut bytes = b"\x93NUMPY\x01\0".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn whole_numbers_of_any_width_are_ids() {
        let expected = Ok(vec![1, 77, 3]);
        for (descr, width) in
            [("|u1", 1), ("<u2", 2), ("<i2", 2), ("<u4", 4), ("<i4", 4), ("<u8", 8), ("<i8", 8)]
        {
            let data: Vec<u8> =
                [1u64, 77, 3].iter().flat_map(|id| id.to_le_bytes()[..width].to_vec()).collect();
            assert_eq!(ids_of("a.npy", &array(descr, "(3,)", &data), 100), expected, "{descr}");
            // The content decides, not the name.
            assert_eq!(ids_of("a.bin", &array(descr, "(3,)", &data), 100), expected, "{descr}");
        }
        let mut later = array("<u2", "(1,)", &[7, 0]);
        later[6] = 3;
        later.splice(10..10, [0, 0]);
        assert_eq!(ids_of("a.npy", &later, 100), Ok(vec![7]));
    }

    #[test]
    fn negative_and_huge_ids_are_named() {
        for (descr, data, id) in [
            ("<i2", (-1i16).to_le_bytes().to_vec(), "-1"),
            ("<i8", (-2i64).to_le_bytes().to_vec(), "-2"),
            ("<u8", (1u64 << 40).to_le_bytes().to_vec(), "1099511627776"),
        ] {
            let text = ids_of("a.npy", &array(descr, "(1,)", &data), 1 << 16).unwrap_err();
            assert!(text.contains(&format!("token id {id} at position 0")), "{text}");
        }
    }

    #[test]
    fn other_arrays_are_refused() {
        for (bytes, part) in [
            (array("<f4", "(1,)", &[0; 4]), "its numbers (<f4) are not read as token ids"),
            (array(">u2", "(1,)", &[0; 2]), "(>u2) are big-endian"),
            (array("<u2", "(2, 1)", &[0; 4]), "of 2 dims, (2, 1); write its ids as one dim"),
            (array("<u2", "()", &[0; 2]), "of 0 dims"),
            (array("<u2", "(3,)", &[0; 4]), "states 3 u16 ids, but 4 bytes follow"),
            (array("<u2", "(99999999999999999999,)", &[0; 4]), "a damaged numpy array"),
            (b"\x93NUMPY\x01\0\xff\xff".to_vec(), "a damaged numpy array"),
            (b"\x93NUMPY\x09\0\xff\xff".to_vec(), "of version 9"),
            (b"\x93NUMPY".to_vec(), "a damaged numpy array"),
        ] {
            let text = ids_of("a.npy", &bytes, 100).unwrap_err();
            assert!(text.contains("a.npy: ") && text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_stated_width_is_compared() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        std::fs::write(&path, array("<u2", "(2,)", &[1, 0, 2, 0])).unwrap();
        for (dtype, is_right) in [(Encoding::U16, true), (Encoding::U32, false)] {
            let input = DataInput::open(&path, Some(dtype)).unwrap();
            let file = TokenFile::of_input(input, 10);
            assert_eq!(file.is_ok(), is_right);
            let text = file.map_or_else(|error| error.to_string(), |_| String::new());
            assert!(
                is_right || text.ends_with("it states u16 ids; leave --token-dtype out"),
                "{text}"
            );
        }
    }
}

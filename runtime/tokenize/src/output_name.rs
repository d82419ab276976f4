//! The name of a token file that is written: `--data` reads it by the same name.

use std::path::{Path, PathBuf};

use meshwright_store::data::Encoding;

use super::{TokenizeError, Tokenizer};

/// Checks that the output is a `.bin` file and none of the inputs.
pub fn check_output(output: &Path, inputs: &[PathBuf]) -> Result<(), TokenizeError> {
    let path = output.to_owned();
    if output.extension().is_none_or(|extension| extension != "bin") {
        return Err(TokenizeError::OutputName { path });
    }
    let real = output.canonicalize().ok();
    if real.is_some() && inputs.iter().any(|input| input.canonicalize().ok() == real) {
        Err(TokenizeError::OutputIsInput { path })
    } else {
        Ok(())
    }
}

/// Checks that `width` holds every id of the tokenizer, and is the width that the name of the output states, if any.
pub fn check_width(
    tokenizer: &Tokenizer,
    output: &Path,
    width: Encoding,
) -> Result<(), TokenizeError> {
    let ids = tokenizer.vocab();
    let needed = Encoding::for_vocab(ids).width();
    let (largest, path) = ((ids - 1) as u32, output.to_owned());
    match Encoding::of_name(output).map(Encoding::width) {
        Some(named) if named < needed => Err(TokenizeError::NarrowName {
            path,
            bits: 8 * named,
            tokenizer: tokenizer.name().to_owned(),
            largest,
            renamed: renamed(output, Encoding::U32),
        }),
        _ if width.width() < needed => {
            let tokenizer = tokenizer.name().to_owned();
            Err(TokenizeError::TooWide { tokenizer, largest })
        }
        Some(named) if named != width.width() => Err(TokenizeError::OtherWidth {
            path,
            bits: 8 * named,
            dtype: if width == Encoding::U32 { "u32" } else { "u16" },
            renamed: renamed(output, width),
        }),
        _ => Ok(()),
    }
}

/// Returns the path with a name that states `width`: `a.u32.bin` for `a.u16.bin`.
fn renamed(output: &Path, width: Encoding) -> PathBuf {
    output.with_extension("").with_extension(format!("u{}.bin", 8 * width.width()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str, width: Encoding) -> String {
        check_width(&Tokenizer::Bytes, Path::new(name), width).unwrap_err().to_string()
    }

    #[test]
    fn names_with_another_width_are_refused() {
        assert_eq!(
            refusal("d/q.u32.bin", Encoding::U16),
            "-o: the name of d/q.u32.bin states ids of 32 bits, and --data would read it so, but --dtype is u16; \
             name it d/q.u16.bin, or use --dtype u32"
        );
        let text = refusal("b.u16.bin", Encoding::U32);
        assert!(text.contains("states ids of 16 bits"), "{text}");
        assert!(text.ends_with("is u32; name it b.u32.bin, or use --dtype u16"), "{text}");
        for (name, width) in [
            ("q.u32.bin", Encoding::U32),
            ("b.u16.bin", Encoding::U16),
            ("b.bin", Encoding::U16),
            ("b.bin", Encoding::U32),
        ] {
            check_width(&Tokenizer::Bytes, Path::new(name), width).unwrap();
        }
    }

    #[test]
    fn names_choose_the_width_if_it_suffices() {
        for (name, vocab, expected) in [
            ("q.u32.bin", 256, Encoding::U32),
            ("b.u16.bin", 256, Encoding::U16),
            ("b.u16.bin", 70_000, Encoding::U32),
            ("b.bin", 256, Encoding::U16),
            ("b.bin", 70_000, Encoding::U32),
        ] {
            assert_eq!(Encoding::for_file(Path::new(name), vocab), expected, "{name}");
        }
    }
}

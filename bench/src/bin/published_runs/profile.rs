//! Facts about the software of published runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

/// The software of a source of published runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Kernels of attention.
    pub attention: Attention,
    /// Communication that overlaps with computation.
    pub overlap: Overlap,
    /// True if chains of elementwise operations are one kernel.
    pub fused: bool,
    /// Bytes of an element of a gradient in its reduction.
    pub reduce_bytes: u64,
}

/// Kernels of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attention {
    /// Matmuls with a softmax between them, whose scores are in memory.
    Unfused,
    /// FlashAttention-2.
    Flash2,
    /// Kernels of cuDNN, and others that are made for the GPU.
    Cudnn,
}

/// Communication that overlaps with computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overlap {
    /// Collectives of tensor parallelism.
    pub tp: bool,
    /// Collectives of gradients and parameters.
    pub data: bool,
    /// Messages between pipeline stages.
    pub messages: bool,
}

impl Profile {
    /// The software of sources without a profile: what most programs do.
    pub const USUAL: Profile = Profile {
        attention: Attention::Cudnn,
        overlap: Overlap { tp: false, data: true, messages: true },
        fused: true,
        reduce_bytes: 4,
    };
}

/// Reads the profiles of a TOML file, one table for each source.
///
/// # Errors
/// A file that cannot be read, and unknown or missing keys and words; with file and line.
pub fn read_profiles(path: &Path) -> Result<BTreeMap<String, Profile>, String> {
    let file = path.display();
    let text = fs::read_to_string(path).map_err(|error| format!("{file}: {error}"))?;
    parse(&text).map_err(|(line, message)| format!("{file}:{line}: {message}"))
}

fn parse(text: &str) -> Result<BTreeMap<String, Profile>, (usize, String)> {
    toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start.min(text.len()));
        (text[..start].matches('\n').count() + 1, error.message().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: &str = "[x]\nattention = \"cudnn\"\n\
                         overlap = { tp = false, data = true, messages = true }\nfused = true\nreduce_bytes = 4\n";

    #[test]
    fn faults_name_line_and_key() {
        assert_eq!(parse(USUAL).unwrap()["x"], Profile::USUAL);
        for (from, to, line, message) in [
            ("cudnn", "flash9", 2, "unknown variant `flash9`"),
            ("tp = false, ", "", 3, "missing field `tp`"),
            ("fused", "fusd", 4, "unknown field `fusd`"),
            ("reduce_bytes = 4", "reduce_bytes = -4", 5, "invalid value"),
            ("[x]", "[x", 1, "unclosed table"),
        ] {
            let (found, text) = parse(&USUAL.replace(from, to)).unwrap_err();
            assert!(found == line && text.contains(message), "{from}: {found} {text}");
        }
    }
}

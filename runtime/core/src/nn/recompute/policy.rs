//! Save policies: those that a model declares, and the override of a run.

use std::num::NonZeroUsize;
use std::str::FromStr;

/// The arguments of `#[recompute(..)]` on a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecomputePolicy {
    /// Grouping of the layers of a stack into segments; a field that is a model is one segment.
    pub grouping: Grouping,
    /// Fields whose results are saved, as paths within the model (for a stack: within each layer).
    pub save: &'static [&'static str],
    /// True if the inputs of a segment are offloaded to host memory until backward.
    pub offload: bool,
}

impl Default for RecomputePolicy {
    /// Every layer is a segment that saves only its input.
    fn default() -> Self {
        RecomputePolicy { grouping: Grouping::Every(1), save: &[], offload: false }
    }
}

/// Grouping of the layers of a stack into checkpointed segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// Segments of this many consecutive layers; the last one may have fewer.
    Every(usize),
    /// Segments of `ceil(sqrt(L))` of the `L` layers: for equal layers, memory then grows with `sqrt(L)` (Chen, Xu,
    /// Zhang and Guestrin, 2016, section 4.1).
    Sqrt,
}

impl Grouping {
    /// Returns the number of layers in each segment of a stack of `count`.
    pub fn layers_per_segment(self, count: usize) -> usize {
        match self {
            Grouping::Every(layers) => layers,
            Grouping::Sqrt => {
                let root = count.isqrt();
                root + usize::from(root * root < count)
            }
        }
    }
}

/// A run's choice of recomputation (`--recompute`), which replaces the model's attributes.
///
/// It applies to stacks that are not inside another stack, annotated or not; nothing else is recomputed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecomputeOverride {
    /// `none`: nothing.
    Off,
    /// `full`: each layer of a stack is a segment.
    Full,
    /// `every=N`: segments of `N` consecutive layers.
    Every(NonZeroUsize),
    /// `sqrt`: like [`Grouping::Sqrt`].
    Sqrt,
    /// `attn`: only attention and its inputs in each layer of a stack, which are the fields of a model up to and
    /// including its [`Attention`](crate::nn::Attention).
    Attention,
}

/// The error for a text that is not a [`RecomputeOverride`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{found}` is not a recomputation policy: expected none, full, every=N (with N at least 1), sqrt or attn"
)]
pub struct UnknownRecompute {
    /// The rejected text.
    pub found: String,
}

impl FromStr for RecomputeOverride {
    type Err = UnknownRecompute;

    fn from_str(text: &str) -> Result<Self, UnknownRecompute> {
        let unknown = || UnknownRecompute { found: text.to_owned() };
        match text {
            "none" => Ok(RecomputeOverride::Off),
            "full" => Ok(RecomputeOverride::Full),
            "sqrt" => Ok(RecomputeOverride::Sqrt),
            "attn" => Ok(RecomputeOverride::Attention),
            _ => {
                let layers = text.strip_prefix("every=").ok_or_else(unknown)?;
                layers.parse().map(RecomputeOverride::Every).map_err(|_| unknown())
            }
        }
    }
}

impl std::fmt::Display for RecomputeOverride {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RecomputeOverride::Off => f.write_str("none"),
            RecomputeOverride::Full => f.write_str("full"),
            RecomputeOverride::Every(layers) => write!(f, "every={layers}"),
            RecomputeOverride::Sqrt => f.write_str("sqrt"),
            RecomputeOverride::Attention => f.write_str("attn"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_are_read_as_they_are_written() {
        for text in ["none", "full", "every=1", "every=12", "sqrt", "attn"] {
            let read: RecomputeOverride = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
        }
        for text in ["", "all", "every", "every=", "every=0", "every=-1", "every=two", "Full"] {
            let error = text.parse::<RecomputeOverride>().unwrap_err();
            assert!(error.to_string().starts_with(&format!("`{text}` is not")), "{error}");
        }
    }

    #[test]
    fn square_root_regions_are_as_many_as_their_layers() {
        let layers = [1, 2, 3, 4, 5, 9, 10, 12, 16, 126];
        let in_region = layers.map(|count| Grouping::Sqrt.layers_per_segment(count));
        assert_eq!(in_region, [1, 2, 2, 2, 3, 3, 4, 4, 4, 12]);
        for (count, in_region) in layers.into_iter().zip(in_region) {
            assert!(count.div_ceil(in_region) <= in_region, "{count}");
        }
    }
}

//! Flags of a new model's sizes.

use super::ModelSizes;
use super::model_type::with_article;

/// A size of a new model that a flag sets.
///
/// Its values are constants: variants would share the names of dims of programs, which the compiler then prints with
/// their paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeFlag(&'static str);

impl SizeFlag {
    /// `--hidden`.
    pub const HIDDEN: SizeFlag = SizeFlag("--hidden");
    /// `--layers`.
    pub const LAYERS: SizeFlag = SizeFlag("--layers");
    /// `--heads`.
    pub const HEADS: SizeFlag = SizeFlag("--heads");
    /// `--kv-heads`.
    pub const KV_HEADS: SizeFlag = SizeFlag("--kv-heads");
    /// `--ffn`.
    pub const FFN: SizeFlag = SizeFlag("--ffn");
    /// `--vocab`.
    pub const VOCAB: SizeFlag = SizeFlag("--vocab");
    /// `--experts`.
    pub const EXPERTS: SizeFlag = SizeFlag("--experts");
    /// `--top-k`.
    pub const TOP_K: SizeFlag = SizeFlag("--top-k");

    /// Flags that a family may have no use for.
    const OPTIONAL: [SizeFlag; 4] =
        [SizeFlag::KV_HEADS, SizeFlag::FFN, SizeFlag::EXPERTS, SizeFlag::TOP_K];

    /// Returns the name of the flag, with its dashes.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Returns the size among those of a new model, if it is given.
    pub(crate) fn given(self, sizes: &ModelSizes) -> Option<usize> {
        match self {
            SizeFlag::HIDDEN => Some(sizes.hidden),
            SizeFlag::LAYERS => Some(sizes.layers),
            SizeFlag::HEADS => Some(sizes.heads),
            SizeFlag::KV_HEADS => sizes.kv_heads,
            SizeFlag::FFN => sizes.ffn,
            SizeFlag::VOCAB => Some(sizes.vocab),
            SizeFlag::EXPERTS => sizes.experts,
            SizeFlag::TOP_K => sizes.top_k,
            SizeFlag(name) => unreachable!("{name} is no size"),
        }
    }

    /// Refuses the first given size that a model of this type has not `taken`.
    pub(crate) fn refuse_others(
        sizes: &ModelSizes,
        taken: &[SizeFlag],
        takes_tied: bool,
        model_type: &str,
    ) -> Result<(), String> {
        let model = with_article(model_type);
        let is_left = |flag: &SizeFlag| !taken.contains(flag);
        for flag in SizeFlag::OPTIONAL.into_iter().filter(is_left) {
            let Some(size) = flag.given(sizes) else { continue };
            let name = flag.name();
            match flag {
                SizeFlag::KV_HEADS if size == sizes.heads => {}
                SizeFlag::KV_HEADS => {
                    return Err(format!(
                        "--kv-heads: {size} differs from --heads {}, but {model} has one key-value head per query \
                         head; leave --kv-heads out",
                        sizes.heads
                    ));
                }
                SizeFlag::EXPERTS | SizeFlag::TOP_K => {
                    return Err(format!("{name}: {model} has no router of experts; leave it out"));
                }
                _ => {
                    return Err(format!("{name}: {model} has no use for it; leave it out"));
                }
            }
        }
        if sizes.tied && !takes_tied {
            return Err(format!("--tied: {model} has no use for it; leave it out"));
        }
        Ok(())
    }
}

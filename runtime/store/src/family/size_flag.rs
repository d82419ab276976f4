//! Flags of a new model's sizes.

use super::ModelSizes;

/// A size of a new model that a flag sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeFlag {
    /// `--hidden`.
    Hidden,
    /// `--layers`.
    Layers,
    /// `--heads`.
    Heads,
    /// `--kv-heads`.
    KvHeads,
    /// `--ffn`.
    Ffn,
    /// `--vocab`.
    Vocab,
    /// `--experts`.
    Experts,
    /// `--top-k`.
    TopK,
}

impl SizeFlag {
    /// Flags that a family may have no use for.
    const OPTIONAL: [SizeFlag; 4] =
        [SizeFlag::KvHeads, SizeFlag::Ffn, SizeFlag::Experts, SizeFlag::TopK];

    /// Returns the name of the flag, with its dashes.
    pub fn name(self) -> &'static str {
        match self {
            SizeFlag::Hidden => "--hidden",
            SizeFlag::Layers => "--layers",
            SizeFlag::Heads => "--heads",
            SizeFlag::KvHeads => "--kv-heads",
            SizeFlag::Ffn => "--ffn",
            SizeFlag::Vocab => "--vocab",
            SizeFlag::Experts => "--experts",
            SizeFlag::TopK => "--top-k",
        }
    }

    /// Returns the size among those of a new model, if it is given.
    pub(crate) fn given(self, sizes: &ModelSizes) -> Option<usize> {
        match self {
            SizeFlag::Hidden => Some(sizes.hidden),
            SizeFlag::Layers => Some(sizes.layers),
            SizeFlag::Heads => Some(sizes.heads),
            SizeFlag::KvHeads => sizes.kv_heads,
            SizeFlag::Ffn => sizes.ffn,
            SizeFlag::Vocab => Some(sizes.vocab),
            SizeFlag::Experts => sizes.experts,
            SizeFlag::TopK => sizes.top_k,
        }
    }

    /// Refuses the first given size that a model of this type has not `taken`.
    pub(crate) fn refuse_others(
        sizes: &ModelSizes,
        taken: &[SizeFlag],
        takes_tied: bool,
        model_type: &str,
    ) -> Result<(), String> {
        let is_left = |flag: &SizeFlag| !taken.contains(flag);
        for flag in SizeFlag::OPTIONAL.into_iter().filter(is_left) {
            let Some(size) = flag.given(sizes) else { continue };
            let name = flag.name();
            match flag {
                SizeFlag::KvHeads if size == sizes.heads => {}
                SizeFlag::KvHeads => {
                    return Err(format!(
                        "--kv-heads: {size} differs from --heads {}, but a {model_type} has one key-value head per \
                         query head; leave --kv-heads out",
                        sizes.heads
                    ));
                }
                SizeFlag::Experts | SizeFlag::TopK => {
                    return Err(format!(
                        "{name}: a {model_type} has no router of experts; leave it out"
                    ));
                }
                _ => {
                    return Err(format!("{name}: a {model_type} has no use for it; leave it out"));
                }
            }
        }
        if sizes.tied && !takes_tied {
            return Err(format!("--tied: a {model_type} has no use for it; leave it out"));
        }
        Ok(())
    }
}

//! Checkpointed segments and their save policy.

/// Checkpointed segment of a model: it saves its inputs, and the results that its save policy selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointedSegment {
    /// Path of the layers: `blocks.3`, or `blocks.2-3` for layers that form one segment.
    pub path: String,
    /// Results that are saved instead of recomputed.
    pub keep: SavePolicy,
    /// True if the inputs are offloaded to host memory until backward.
    pub offload: bool,
}

/// Save policy: fields whose results a segment saves. These are results of matmuls, attention and norms that belong to
/// the field or to one inside it. Elementwise results are always recomputed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SavePolicy {
    /// No field.
    #[default]
    Nothing,
    /// Fields at or under these paths.
    Under(Vec<String>),
    /// All fields but those at or under these paths.
    AllBut(Vec<String>),
}

impl SavePolicy {
    pub(super) fn saves(&self, path: &str) -> bool {
        let is_under = |field: &String| {
            path.strip_prefix(field.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        match self {
            SavePolicy::Nothing => false,
            SavePolicy::Under(fields) => fields.iter().any(is_under),
            SavePolicy::AllBut(fields) => !fields.iter().any(is_under),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn save_policy_matches_whole_names() {
        let paths = ["blocks.3.attn", "blocks.3.attn.core", "blocks.3.attn_norm.weight"];
        let saved = |keep: &SavePolicy| paths.map(|path| keep.saves(path));
        let roots = || vec!["blocks.3.attn".to_owned()];
        assert_eq!(saved(&SavePolicy::Nothing), [false, false, false]);
        assert_eq!(saved(&SavePolicy::Under(roots())), [true, true, false]);
        assert_eq!(saved(&SavePolicy::AllBut(roots())), [false, false, true]);
    }
}

//! The implementations that passes of attention have run on, for the summary of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// The implementations that attention has run on so far. Passes of the same implementation are noted once.
#[derive(Default)]
pub struct AttentionUse(Mutex<BTreeMap<AttentionImplementation, Passes>>);

/// An implementation of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttentionImplementation {
    /// The fused kernels of cuDNN.
    Cudnn,
    /// The project's own kernels, and why they replace cuDNN's.
    Own(&'static str),
}

/// A pass of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassDirection {
    Forward,
    Backward,
}

/// Passes that an implementation has run.
#[derive(Default)]
struct Passes {
    forward: bool,
    backward: bool,
}

impl AttentionUse {
    /// Notes that a pass runs on an implementation.
    pub fn note(&self, pass: PassDirection, implementation: AttentionImplementation) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passes = noted.entry(implementation).or_default();
        match pass {
            PassDirection::Forward => passes.forward = true,
            PassDirection::Backward => passes.backward = true,
        }
    }

    /// Describes the implementations, such as `cuDNN` or `own kernels (scores have a bias)`; `None` if no attention has
    /// run.
    pub fn describe(&self) -> Option<String> {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // An evaluation has no backward, which is not worth a word if all forward passes are alike.
        let trains = noted.values().any(|passes| passes.backward);
        let describe = |(implementation, passes): (&AttentionImplementation, &Passes)| {
            let of = match passes {
                Passes { forward: true, backward: false } if trains => " in forward",
                Passes { forward: false, backward: true } => " in backward",
                _ => "",
            };
            match implementation {
                AttentionImplementation::Cudnn => format!("cuDNN{of}"),
                AttentionImplementation::Own(reason) => format!("own kernels{of} ({reason})"),
            }
        };
        let all: Vec<String> = noted.iter().map(describe).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

impl fmt::Display for PassDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PassDirection::Forward => "forward",
            PassDirection::Backward => "backward",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::AttentionImplementation::{Cudnn, Own};
    use super::PassDirection::{Backward, Forward};
    use super::*;

    #[test]
    fn implementations_are_described_with_their_passes() {
        let describe = |noted: &[(PassDirection, AttentionImplementation)]| {
            let all = AttentionUse::default();
            noted.iter().for_each(|(pass, of)| all.note(*pass, *of));
            all.describe()
        };
        assert_eq!(describe(&[]), None);
        let cudnn = [(Forward, Cudnn), (Backward, Cudnn), (Forward, Cudnn)];
        assert_eq!(describe(&cudnn).unwrap(), "cuDNN");
        assert_eq!(describe(&cudnn[..1]).unwrap(), "cuDNN");
        let ring = [(Forward, Cudnn), (Backward, Own("gradients are added"))];
        let expected = "cuDNN in forward, own kernels in backward (gradients are added)";
        assert_eq!(describe(&ring).unwrap(), expected);
        let bias = [Forward, Backward].map(|pass| (pass, Own("scores have a bias")));
        let expected = "cuDNN, own kernels (scores have a bias)";
        assert_eq!(describe(&[&bias[..], &cudnn[..]].concat()).unwrap(), expected);
    }
}

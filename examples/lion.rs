//! An optimizer that the library does not have: Lion (Chen et al., 2023, "Symbolic Discovery of Optimization
//! Algorithms", arXiv 2302.06675).

use meshwright::optim::{FlatSlice, Group, UpdateRule, Updated, check_fraction, check_nonnegative};
use meshwright::train::OptimizerEntry;

/// The sign of an interpolation of momentum and gradient, with decoupled weight decay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lion {
    /// Weights of the momentum in the update direction, and in the new momentum.
    pub betas: (f64, f64),
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

impl Default for Lion {
    /// Betas 0.9 and 0.99, weight decay 0.1.
    fn default() -> Lion {
        Lion { betas: (0.9, 0.99), weight_decay: 0.1 }
    }
}

impl Lion {
    /// Makes `--optimizer lion` work, with `--betas` and `--weight-decay`.
    pub fn entry() -> OptimizerEntry {
        let entry = OptimizerEntry::new("lion", |flags| Lion {
            betas: flags.betas(),
            weight_decay: flags.weight_decay,
        });
        entry.betas(Lion::default().betas)
    }
}

impl UpdateRule for Lion {
    fn name(&self) -> &str {
        "lion"
    }

    fn state_kinds(&self, _: Group) -> &'static [&'static str] {
        &["lion_momentum"]
    }

    fn update(&self, slice: FlatSlice<'_>) -> Updated {
        let (beta1, beta2) = self.betas;
        let (lr, decay) = (slice.lr(), slice.weight_decay(self.weight_decay));
        slice.update_elementwise(["lion_momentum"], |param, gradient, [momentum]| {
            let direction = (beta1 * momentum + (1.0 - beta1) * gradient).sign();
            let momentum = beta2 * momentum + (1.0 - beta2) * gradient;
            ((1.0 - lr * decay) * param - lr * direction, [momentum])
        })
    }

    fn check(&self) -> Result<(), String> {
        check_fraction("the first beta", self.betas.0)?;
        check_fraction("the second beta", self.betas.1)?;
        check_nonnegative("weight_decay", self.weight_decay)
    }

    fn options(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}

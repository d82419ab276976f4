//! The optimizers that `--optimizer` selects from: the library's, and what a program registers.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::optim::{AdamWOptions, MuonOptions, SgdOptions, UpdateRule};

/// The optimizers that `--optimizer` selects from, by name.
///
/// By default `adamw`, `sgd` and `muon`; a program adds optimizers of its own:
///
/// ```
/// # use meshwright::optim::{FlatSlice, Group, UpdateRule, Updated};
/// use meshwright::train::{Config, OptimizerEntry, Optimizers};
///
/// # #[derive(Debug)]
/// # struct HeavyBall { momentum: f64 }
/// # impl UpdateRule for HeavyBall {
/// #     fn name(&self) -> &str { "heavy-ball" }
/// #     fn state_kinds(&self, _: Group) -> &'static [&'static str] { &["velocity"] }
/// #     fn update(&self, slice: FlatSlice<'_>) -> Updated {
/// #         let lr = slice.lr();
/// #         slice.update_elementwise(["velocity"], |p, g, [v]| {
/// #             let v = self.momentum * v - lr * g;
/// #             (p + v, [v])
/// #         })
/// #     }
/// # }
/// let heavy_ball =
///     OptimizerEntry::new("heavy-ball", |flags| HeavyBall { momentum: flags.momentum() });
/// let optimizers = Optimizers::default().with(heavy_ball.momentum(0.9));
/// let line = ["train", "--optimizer", "heavy-ball", "--momentum", "0.8"];
/// let config = Config::parse_with(line, &optimizers)?;
/// assert_eq!(config.optimizer.choice.flags.momentum(), 0.8);
/// # Ok::<_, meshwright::train::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Optimizers {
    pub(super) entries: Vec<OptimizerEntry>,
}

/// An optimizer that `--optimizer` can select: its name, and the flags that it takes.
#[derive(Clone)]
pub struct OptimizerEntry {
    name: &'static str,
    defaults: OptimizerFlags,
    make: Arc<MakeRule>,
}

/// Makes an update rule of the flags that it takes.
type MakeRule = dyn Fn(&OptimizerFlags) -> Arc<dyn UpdateRule> + Send + Sync;

/// Values of the flags that an optimizer takes; `None` for the flags of other optimizers.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct OptimizerFlags {
    /// `--betas`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub betas: Option<(f64, f64)>,
    /// `--eps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eps: Option<f64>,
    /// `--momentum`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub momentum: Option<f64>,
    /// `--weight-decay`, which every optimizer takes.
    #[serde(skip)]
    pub weight_decay: f64,
}

impl Default for Optimizers {
    fn default() -> Optimizers {
        let adamw_options = |flags: &OptimizerFlags| AdamWOptions {
            betas: flags.betas(),
            eps: flags.eps(),
            weight_decay: flags.weight_decay,
        };
        let AdamWOptions { betas, eps, .. } = AdamWOptions::default();
        let sgd = OptimizerEntry::new("sgd", |flags| SgdOptions {
            momentum: flags.momentum(),
            nesterov: false,
            weight_decay: flags.weight_decay,
        });
        let muon = OptimizerEntry::new("muon", move |flags| MuonOptions {
            momentum: flags.momentum(),
            adamw: adamw_options(flags),
        });
        let entries = vec![
            OptimizerEntry::new("adamw", adamw_options).betas(betas).eps(eps),
            sgd.momentum(SgdOptions::default().momentum),
            muon.momentum(MuonOptions::default().momentum).betas(betas).eps(eps),
        ];
        Optimizers { entries }
    }
}

impl Optimizers {
    /// Adds an optimizer, under a name that no other has.
    pub fn with(mut self, entry: OptimizerEntry) -> Optimizers {
        self.entries.push(entry);
        self
    }

    /// Returns the optimizers in the order of registration.
    pub fn entries(&self) -> &[OptimizerEntry] {
        &self.entries
    }

    /// Returns the entry of this name, or the default.
    pub(super) fn find(&self, name: &str) -> &OptimizerEntry {
        self.entries.iter().find(|entry| entry.name == name).unwrap_or(&self.entries[0])
    }

    /// Returns a name that two entries have.
    pub(super) fn duplicate_name(&self) -> Option<&'static str> {
        let names = self.entries.iter().enumerate();
        let mut duplicates = names.filter(|(index, entry)| {
            self.entries[..*index].iter().any(|other| other.name == entry.name)
        });
        duplicates.next().map(|(_, entry)| entry.name)
    }
}

impl OptimizerEntry {
    /// Creates an entry for a rule with the same [name](UpdateRule::name); `make` makes the rule of the flags.
    pub fn new<R: UpdateRule + 'static>(
        name: &'static str,
        make: impl Fn(&OptimizerFlags) -> R + Send + Sync + 'static,
    ) -> OptimizerEntry {
        let make = move |flags: &OptimizerFlags| Arc::new(make(flags)) as Arc<dyn UpdateRule>;
        OptimizerEntry { name, defaults: OptimizerFlags::default(), make: Arc::new(make) }
    }

    /// Enables `--betas`, by default `default`.
    pub fn betas(mut self, default: (f64, f64)) -> OptimizerEntry {
        self.defaults.betas = Some(default);
        self
    }

    /// Enables `--eps`, by default `default`.
    pub fn eps(mut self, default: f64) -> OptimizerEntry {
        self.defaults.eps = Some(default);
        self
    }

    /// Enables `--momentum`, by default `default`.
    pub fn momentum(mut self, default: f64) -> OptimizerEntry {
        self.defaults.momentum = Some(default);
        self
    }

    /// Returns the value of `--optimizer` that selects it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn defaults(&self) -> OptimizerFlags {
        self.defaults
    }

    /// Returns true if the optimizer takes `--{flag}`.
    pub(super) fn takes_flag(&self, flag: &str) -> bool {
        let OptimizerFlags { betas, eps, momentum, .. } = self.defaults;
        match flag {
            "betas" => betas.is_some(),
            "eps" => eps.is_some(),
            "momentum" => momentum.is_some(),
            _ => false,
        }
    }

    pub(super) fn make_rule(&self, flags: &OptimizerFlags) -> Arc<dyn UpdateRule> {
        (self.make)(flags)
    }
}

impl OptimizerFlags {
    /// The flags that only some optimizers take.
    pub(super) const NAMES: [&str; 3] = ["betas", "eps", "momentum"];

    /// Returns `--betas`.
    ///
    /// # Panics
    /// If the entry of the optimizer does not take it.
    pub fn betas(&self) -> (f64, f64) {
        self.betas.expect("the optimizer's entry takes `--betas`: add `.betas(default)`")
    }

    /// Returns `--eps`.
    ///
    /// # Panics
    /// If the entry of the optimizer does not take it.
    pub fn eps(&self) -> f64 {
        self.eps.expect("the optimizer's entry takes `--eps`: add `.eps(default)`")
    }

    /// Returns `--momentum`.
    ///
    /// # Panics
    /// If the entry of the optimizer does not take it.
    pub fn momentum(&self) -> f64 {
        self.momentum.expect("the optimizer's entry takes `--momentum`: add `.momentum(default)`")
    }
}

impl fmt::Debug for OptimizerEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OptimizerEntry { name, defaults, .. } = self;
        f.debug_struct("OptimizerEntry").field("name", name).field("defaults", defaults).finish()
    }
}

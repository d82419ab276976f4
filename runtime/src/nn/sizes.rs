//! The sizes and settings of a model, which are given at run time.

use std::any::TypeId;
use std::collections::{HashMap, HashSet};

use crate::layout::{DimInfo, Whole};

use super::RecomputeOverride;

/// Global sizes of the dims a model declares, and the numbers its layers need besides.
#[derive(Debug, Clone)]
pub struct Sizes {
    dims: HashMap<TypeId, usize>,
    flags: HashSet<String>,
    /// Added under the square root of a norm.
    pub norm_eps: f32,
    /// Base of the rotary embedding's wavelengths.
    pub rope_theta: f32,
    /// Standard deviation of weights at the start.
    pub init_std: f32,
    /// Rate of the model's dropout layers.
    pub dropout: f32,
    /// What is recomputed instead of what the model's attributes say.
    pub recompute: Option<RecomputeOverride>,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            dims: HashMap::new(),
            flags: HashSet::new(),
            norm_eps: 1e-5,
            rope_theta: 10_000.0,
            init_std: 0.02,
            dropout: 0.0,
            recompute: None,
        }
    }
}

impl Sizes {
    /// No sizes, and the usual settings: norms with 1e-5, rotary base 10,000, weights of standard deviation 0.02, no
    /// dropout, recomputation as the model says.
    pub fn new() -> Sizes {
        Sizes::default()
    }

    /// The same with dim `D` of `size` elements: `Sizes::new().with(Hidden, 512)`.
    #[must_use]
    pub fn with<D: Whole>(mut self, _: D, size: usize) -> Sizes {
        self.dims.insert(TypeId::of::<D>(), size);
        self
    }

    /// The same with the flag `name` set, which `#[tied(.., when = "name")]` reads.
    #[must_use]
    pub fn with_flag(mut self, name: &str, set: bool) -> Sizes {
        if set {
            self.flags.insert(name.to_owned());
        } else {
            self.flags.remove(name);
        }
        self
    }

    /// The size of dim `D`, if it was given.
    pub fn get<D: Whole>(&self) -> Option<usize> {
        self.dims.get(&TypeId::of::<D>()).copied()
    }

    /// Whether the flag `name` is set.
    pub fn flag(&self, name: &str) -> bool {
        self.flags.contains(name)
    }

    pub(crate) fn of(&self, dim: &DimInfo) -> Option<usize> {
        self.dims.get(&(dim.key)()).copied()
    }
}

//! Initial values of parameters.

use crate::context::{Rank, block_index};
use crate::random;
use meshwright_backend::{BlockIndex, Buffer, DType};
use meshwright_mesh::__internal::local_len;
use meshwright_mesh::Extent;

/// Initialization of a parameter. Every element is a function of the seed, the parameter's path and the element's index
/// in the global tensor, so every mesh starts from the same model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// All zeros: biases.
    Zeros,
    /// All ones: gains.
    Ones,
    /// All elements are this number.
    Constant(f32),
    /// Normally distributed around zero with this standard deviation.
    Normal(f32),
    /// Like `Normal`, but zeros in one row, the index of the first dim: embeddings with a row for padding.
    NormalExceptRow {
        /// The standard deviation.
        std: f32,
        /// The row.
        row: usize,
    },
    /// Uniformly distributed between the negative of this number and the number.
    Uniform(f32),
    /// Normally distributed with the standard deviation `gain / sqrt(fan_in)`, of the **global** weight (LeCun et al.,
    /// "Efficient BackProp", 1998, with a gain of 1; He et al., "Delving Deep into Rectifiers", 2015, with a gain of
    /// `sqrt(2)`).
    Kaiming(f32),
    /// Normally distributed with the standard deviation `gain * sqrt(2 / (fan_in + fan_out))`, of the **global** weight
    /// (Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010).
    Xavier(f32),
    /// Sinusoids of a table of positions: row `t` holds the sines and then the cosines of `t / longest^(i / (n - 1))`,
    /// for `i` below `n`, half of the width (as in Radford et al., "Robust Speech Recognition via Large-Scale Weak
    /// Supervision", 2022).
    Sinusoids {
        /// The longest wavelength, in units of `2 pi` positions.
        longest: f32,
    },
}

impl Init {
    /// Returns the mistake in the numbers, if there is one, as the end of a sentence.
    pub(crate) fn mistake(self) -> Option<String> {
        let (what, number, least) = match self {
            Init::Zeros | Init::Ones => return None,
            Init::Constant(number) => ("the constant", number, f32::MIN),
            Init::Normal(std) | Init::NormalExceptRow { std, .. } => {
                ("the standard deviation", std, 0.0)
            }
            Init::Uniform(bound) => ("the bound", bound, 0.0),
            Init::Kaiming(gain) | Init::Xavier(gain) => ("the gain", gain, 0.0),
            Init::Sinusoids { longest } => ("the longest wavelength", longest, 0.0),
        };
        let range = if least == 0.0 { "a finite number of at least 0" } else { "a finite number" };
        let is_valid = number.is_finite() && number >= least;
        (!is_valid).then(|| format!("are `{self:?}`, but {what} is {range}"))
    }

    /// Returns the distribution of values of a weight with these fans.
    fn distribution(self, [fan_in, fan_out]: [usize; 2]) -> Distribution {
        match self {
            Init::Zeros => Distribution::Constant(0.0),
            Init::Ones => Distribution::Constant(1.0),
            Init::Constant(number) => Distribution::Constant(number),
            Init::Normal(std) | Init::NormalExceptRow { std, .. } => Distribution::Normal(std),
            Init::Uniform(bound) => Distribution::Uniform(bound),
            Init::Kaiming(gain) => Distribution::Normal(gain / (fan_in as f32).sqrt()),
            Init::Xavier(gain) => {
                Distribution::Normal(gain * (2.0 / (fan_in + fan_out) as f32).sqrt())
            }
            Init::Sinusoids { longest } => Distribution::Sinusoids(longest),
        }
    }
}

/// The distribution of the elements of a parameter.
enum Distribution {
    Constant(f32),
    Normal(f32),
    Uniform(f32),
    /// Not random: of a table of positions, with the longest wavelength.
    Sinusoids(f32),
}

/// Computes the block `index` of a table of sines and cosines of positions.
fn sinusoids(longest: f32, index: &BlockIndex) -> Vec<f32> {
    let width = index.global.last().map_or(1, |width| *width as u64).max(1);
    let half = (width / 2).max(1);
    let step = f64::from(longest).ln() / (half - 1).max(1) as f64;
    let element = |at: usize| {
        let at = index.global_index(at);
        let (row, column) = (at / width, at % width);
        let angle = row as f64 * (-step * (column % half) as f64).exp();
        (if column < half { angle.sin() } else { angle.cos() }) as f32
    };
    (0..index.len()).map(element).collect()
}

/// Initialization of a parameter, with the row that is zeros, if there is one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InitialValues {
    init: Init,
    zero_row: Option<usize>,
}

impl From<Init> for InitialValues {
    fn from(init: Init) -> InitialValues {
        let zero_row = match init {
            Init::NormalExceptRow { row, .. } => Some(row),
            _ => None,
        };
        InitialValues { init, zero_row }
    }
}

impl InitialValues {
    /// Returns the values of `other`, with the zeros of these, too.
    pub(crate) fn replaced_by(self, other: Init) -> InitialValues {
        let other = InitialValues::from(other);
        InitialValues { zero_row: other.zero_row.or(self.zero_row), ..other }
    }

    /// Returns the row that is zeros.
    pub(crate) fn zero_row(self) -> Option<usize> {
        self.zero_row
    }

    /// Computes this rank's block, of these extents, of the parameter at `path`, whose global weight has these fans.
    pub(super) fn compute(
        self,
        rank: &Rank,
        path: &str,
        extents: &[Extent],
        fans: [usize; 2],
    ) -> Buffer {
        let len = local_len(extents);
        let mut block = rank.alloc_scratch(DType::F32, len);
        let (key, backend) = (random::key(rank.seed(), path), rank.backend());
        match self.init.distribution(fans) {
            Distribution::Constant(number) => backend.fill(block.view_mut(), number),
            Distribution::Normal(std) => {
                backend.fill_normal(key, std, &block_index(extents), block.view_mut());
            }
            Distribution::Uniform(bound) => {
                backend.fill_uniform(key, bound, &block_index(extents), block.view_mut());
            }
            Distribution::Sinusoids(longest) => {
                block.view_mut().write(&sinusoids(longest, &block_index(extents)));
            }
        }
        if let Some(row) = self.zero_row.and_then(|row| row.checked_sub(extents[0].offset))
            && row < extents[0].local
        {
            let len = len / extents[0].local;
            backend.fill(block.view_mut().slice(row * len..(row + 1) * len), 0.0);
        }
        block
    }
}

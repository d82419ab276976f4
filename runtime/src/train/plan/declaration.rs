//! Declaring a model without allocating it, to learn its parameters, FSDP units and pipeline stages.

use crate::backend::cpu::CpuBackend;
use crate::comm::RankComms;
use crate::nn::{Build, BuildError, Built, Layers, Sizes};
use crate::tensor::{ParamRef, Rank};
use crate::train::config::Config;
use crate::train::{Error, Result};
use meshwright_core::__internal::declare;

/// Declares a model on a rank of [`dry_run_rank`]. Allocates nothing.
///
/// # Errors
/// Sizes that do not fit the model or the mesh.
pub fn declare_model<M: Build>(rank: &Rank, sizes: &Sizes) -> Result<Built<M>> {
    declare::<M>(rank, sizes).map_err(|error| refuse_sizes(rank, &error))
}

/// Declares the first layers of a model, one or one pattern of their kinds, and returns their parameters.
///
/// # Errors
/// As [`declare_model`].
pub fn declare_first_layers<M: Build>(rank: &Rank, sizes: &Sizes) -> Result<Vec<ParamRef>> {
    let mut first = sizes.clone();
    if let Some(layers) = sizes.get::<Layers>() {
        first = first.with(Layers, layers.min(sizes.layer_period()));
    }
    first.recompute = None;
    Ok(declare_model::<M>(rank, &first)?.params())
}

/// Creates the last rank of the mesh, which has the most of dims that do not divide evenly, without the others.
///
/// # Errors
/// A thread that cannot be started.
pub fn dry_run_rank(config: &Config) -> Result<Rank> {
    let backend = CpuBackend::new(1).map_err(|error| Error::Input(error.to_string()))?;
    let comms = RankComms::unattended(config.mesh);
    Ok(Rank::with_settings(comms, Box::new(backend), config.settings()))
}

fn refuse_sizes(rank: &Rank, error: &BuildError) -> Error {
    let mesh = rank.comms().shape();
    Error::Input(format!(
        "{error}\nuse a --mesh whose degrees divide these sizes, or other sizes; this mesh is {mesh}"
    ))
}

/// The number of parameters of a model. Counted in floating point, which sizes that no machine could hold do not
/// overflow.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ParamCount {
    pub all: f64,
    /// Parameters that are not frozen.
    pub trained: f64,
}

impl ParamCount {
    /// Counts all elements of parameters.
    pub fn of(params: &[ParamRef]) -> ParamCount {
        let elements =
            |param: &ParamRef| param.sizes().iter().map(|size| *size as f64).product::<f64>();
        let trained = params.iter().filter(|param| !param.is_frozen());
        let (all, trained) = (params.iter().map(elements).sum(), trained.map(elements).sum());
        ParamCount { all, trained }
    }

    /// Returns as many parameters as `all`, of which the same part is trained.
    pub fn with_all(self, all: f64) -> ParamCount {
        let trained = if self.trained == self.all { all } else { all * self.trained / self.all };
        ParamCount { all, trained }
    }
}

/// Counts the parameters of a model of any number of [`Layers`], by declaring it with one and with two of them, or of
/// the patterns of their kinds.
///
/// # Errors
/// As [`declare_model`].
pub fn estimate_parameters<M: Build>(rank: &Rank, sizes: &Sizes) -> Result<ParamCount> {
    let count = |layers: usize| {
        let mut sizes = sizes.clone().with(Layers, layers);
        sizes.recompute = None;
        Ok(ParamCount::of(&declare_model::<M>(rank, &sizes)?.params()))
    };
    let period = sizes.layer_period();
    match sizes.get::<Layers>() {
        None => Ok(ParamCount::of(&declare_model::<M>(rank, sizes)?.params())),
        Some(layers) if layers <= 2 * period => count(layers),
        Some(layers) => {
            let (one, two) = (count(period)?, count(2 * period)?);
            let more = (layers - period) as f64 / period as f64;
            let extended = |one: f64, two: f64| one + (two - one) * more;
            let all = extended(one.all, two.all);
            Ok(ParamCount { all, trained: extended(one.trained, two.trained) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dims;
    use crate::nn::{Builder, Embedding, LmHead, RmsNorm, Stack};

    dims! { crate = crate; Vocab, Hidden }

    struct Tower;

    impl Build for Tower {
        fn build(builder: &mut Builder<'_>) -> Tower {
            Embedding::<Vocab, Hidden>::build(&mut builder.field("embed"));
            Stack::<RmsNorm<Hidden>>::build(&mut builder.field("blocks"));
            LmHead::<Hidden, Vocab>::build(&mut builder.field("head"));
            Tower
        }
    }

    fn single_rank() -> Rank {
        dry_run_rank(&Config::parse("t --mesh 1".split(' ')).unwrap()).unwrap()
    }

    #[test]
    fn parameters_follow_from_the_declared_model() {
        let rank = single_rank();
        for layers in [1, 2, 3, 7] {
            let sizes = Sizes::new().with(Vocab, 10).with(Hidden, 4).with(Layers, layers);
            let declared = declare_model::<Tower>(&rank, &sizes).unwrap().global_len();
            assert_eq!(declared, 80 + 4 * layers);
            assert_eq!(estimate_parameters::<Tower>(&rank, &sizes).unwrap().all, declared as f64);
        }
    }

    /// Not even a list of so many layers would fit in memory.
    #[test]
    fn endless_models_are_counted() {
        let rank = single_rank();
        let most = u32::MAX as usize;
        let sizes = Sizes::new().with(Vocab, most).with(Hidden, most).with(Layers, most);
        let most = most as f64;
        let expected = 3.0 * most * most;
        let estimate = estimate_parameters::<Tower>(&rank, &sizes).unwrap().all;
        assert!((estimate / expected - 1.0).abs() < 1e-6, "{estimate} instead of {expected}");
    }
}

//! Declaring a model without allocating it, to learn its parameters and FSDP units.

use crate::backend::cpu::CpuBackend;
use crate::comm::RankComms;
use crate::nn::{Build, BuildError, Built, Layers, Sizes, declare};
use crate::pipeline::{ParseStageCutError, StagePlan, StageRequest, plan_stages};
use crate::tensor::{ParamRef, Rank};
use crate::train::config::{Config, PipelineConfig};
use crate::train::{Error, LanguageModel, Result};

/// Declares a model on the last rank of the mesh, which has the most of dims that do not divide evenly. Allocates nothing.
///
/// # Errors
/// Sizes that do not fit the model or the mesh.
pub fn declare_model<M: Build>(config: &Config, sizes: &Sizes) -> Result<Built<M>> {
    declare::<M>(&dry_run_rank(config)?, sizes).map_err(|error| refuse_sizes(config, &error))
}

/// Cuts the pipeline stages of a model, placed on the positions along `pp` of `placement`. Allocates nothing.
///
/// # Errors
/// As [`declare_model`], and a cut that does not fit the model or the mesh.
pub fn cut_model<M: LanguageModel>(
    config: &Config,
    sizes: &Sizes,
    pipeline: &PipelineConfig,
    placement: &[usize],
) -> Result<StagePlan> {
    let cut = &pipeline.stages.parse().map_err(|error| {
        let error: ParseStageCutError = error;
        Error::Input(format!("--stages: {error}"))
    })?;
    let request = StageRequest { placement, cut, seq: config.seq };
    plan_stages::<M>(&dry_run_rank(config)?, sizes, &request)
        .map_err(|error| Error::Input(error.problems.join("\n")))
}

/// Creates the last rank of the mesh, without others.
fn dry_run_rank(config: &Config) -> Result<Rank> {
    let backend = CpuBackend::new(1).map_err(|error| Error::Input(error.to_string()))?;
    let comms = RankComms::unattended(config.mesh);
    Ok(Rank::with_settings(comms, Box::new(backend), config.settings()))
}

fn refuse_sizes(config: &Config, error: &BuildError) -> Error {
    Error::Input(format!(
        "{error}\nuse a --mesh whose degrees divide these sizes, or other sizes; this mesh is {}",
        config.mesh
    ))
}

/// Counts the parameters of a model of any number of [`Layers`], by declaring it with one and with two of them. Counts in
/// floating point, which sizes that no machine could hold do not overflow.
///
/// # Errors
/// As [`declare_model`].
pub fn estimate_parameters<M: Build>(config: &Config, sizes: &Sizes) -> Result<f64> {
    let count = |layers: usize| {
        let mut sizes = sizes.clone().with(Layers, layers);
        sizes.recompute = None;
        Ok(parameter_count(&declare_model::<M>(config, &sizes)?.params()))
    };
    match sizes.get::<Layers>() {
        None => Ok(parameter_count(&declare_model::<M>(config, sizes)?.params())),
        Some(layers @ 0..=2) => count(layers),
        Some(layers) => {
            let (one, two): (f64, f64) = (count(1)?, count(2)?);
            Ok(one + (two - one) * (layers - 1) as f64)
        }
    }
}

fn parameter_count(params: &[ParamRef]) -> f64 {
    let elements =
        |param: &ParamRef| param.sizes().iter().map(|size| *size as f64).product::<f64>();
    params.iter().map(elements).sum()
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

    #[test]
    fn parameters_follow_from_the_declared_model() {
        let config = Config::parse("t --mesh 1".split(' ')).unwrap();
        for layers in [1, 2, 3, 7] {
            let sizes = Sizes::new().with(Vocab, 10).with(Hidden, 4).with(Layers, layers);
            let declared = declare_model::<Tower>(&config, &sizes).unwrap().global_len();
            assert_eq!(declared, 80 + 4 * layers);
            assert_eq!(estimate_parameters::<Tower>(&config, &sizes).unwrap(), declared as f64);
        }
    }

    /// Not even a list of so many layers would fit in memory.
    #[test]
    fn endless_models_are_counted() {
        let config = Config::parse("t --mesh 1".split(' ')).unwrap();
        let most = u32::MAX as usize;
        let sizes = Sizes::new().with(Vocab, most).with(Hidden, most).with(Layers, most);
        let most = most as f64;
        let expected = 3.0 * most * most;
        let estimate = estimate_parameters::<Tower>(&config, &sizes).unwrap();
        assert!((estimate / expected - 1.0).abs() < 1e-6, "{estimate} instead of {expected}");
    }
}

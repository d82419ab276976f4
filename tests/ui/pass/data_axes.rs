//! Batches of any home, and models refused when they are built.

use meshwright::nn::build;
use meshwright::prelude::*;

dims! { Batch @ data, Rows, Half @ dp, Hidden, Ffn }

#[model]
struct Up {
    up: Linear<Hidden, Ffn>,
}

/// Loss and norm of the gradient for samples along `$samples`.
macro_rules! measured {
    ($samples:ty, $mesh:expr) => {{
        let sizes = Sizes::new().with(Hidden, 4).with(Ffn, 6);
        let results = meshwright::run_on($mesh, 1, |rank| {
            let up = build::<Up>(rank, &sizes)?.model;
            let x: Tensor<($samples, Hidden)> =
                Tensor::from_fn(rank, &[8, 4], |at| (at[0] * 4 + at[1]) as f32 * 0.1);
            let y = up.up.forward(&x);
            let loss = Loss::mean_of(&(&y * &y));
            Ok([loss.reduce().value(), loss.backward().reduce().norm()])
        });
        results.expect("the ranks agree")
    }};
}

/// A hand-written loop may keep all samples on each rank, or distribute them over one of the data axes.
#[test]
fn samples_of_any_home_are_exact() {
    let expected = measured!(Batch, "1")[0];
    for mesh in ["dp=2", "fsdp=2", "dp=2,tp=2", "dp=2,fsdp=2"] {
        let homes = [measured!(Batch, mesh), measured!(Rows, mesh), measured!(Half, mesh)];
        for found in homes.into_iter().flatten() {
            for (found, expected) in found.into_iter().zip(expected) {
                assert!((found / expected - 1.0).abs() < 1e-6, "{mesh}: {found} for {expected}");
            }
        }
    }
}

/// A user-defined layer over any dim: only its use determines if a parameter can have the dim.
struct Gain<D> {
    gain: Param<(D,)>,
}

impl<D: Dim> Build for Gain<D> {
    fn build(builder: &mut Builder<'_>) -> Self {
        Gain { gain: builder.param("gain", Init::Ones) }
    }
}

impl<D: Dim> Gain<D> {
    fn forward(&self, x: &Tensor<(Rows, D)>) -> Tensor<(Rows, D)> {
        x * &self.gain
    }
}

#[model]
#[expect(dead_code, reason = "its build is looked at only")]
struct OverSamples {
    gain: Gain<Batch>,
}

#[model]
#[expect(dead_code, reason = "its build is looked at only")]
struct OverAnAxisOfSamples {
    gains: Stack<Scaled<Split<Hidden, Fsdp>>>,
}

#[model]
#[expect(dead_code, reason = "its build is looked at only")]
struct Scaled<D: Dim> {
    gain: Gain<D>,
}

/// The parameters of a list, each built by a closure.
#[expect(dead_code, reason = "its build is looked at only")]
struct List(Vec<Param<(Half, Hidden)>>);

impl Build for List {
    fn build(builder: &mut Builder<'_>) -> Self {
        List((0..2).map(|i| builder.param(&format!("row_{i}"), Init::Zeros)).collect())
    }
}

type OverFeatures = Gain<Hidden>;

/// Returns the error of a build.
fn problem<M: Build>() -> String {
    let sizes = Sizes::new().with(Hidden, 4).with(Batch, 8).with(Half, 8).with(Layers, 1);
    let built = meshwright::run_on("dp=2", 1, |rank| {
        Ok(build::<M>(rank, &sizes).err().map(|error| error.to_string()).unwrap_or_default())
    });
    built.expect("the ranks run").remove(0)
}

#[test]
fn parameters_over_samples_are_not_built() {
    for (message, axes) in [
        (problem::<OverSamples>(), "dp x fsdp x ep"),
        (problem::<OverAnAxisOfSamples>(), "fsdp"),
        (problem::<Scaled<Half>>(), "dp"),
        (problem::<List>(), "dp"),
    ] {
        let expected =
            format!("which is distributed over {axes}: the ranks of the axis compute with");
        assert!(message.contains(&expected), "{message}");
    }
    assert_eq!(problem::<OverFeatures>(), "");
    let run = meshwright::run_on("1", 1, |rank| {
        let gain = build::<OverFeatures>(rank, &Sizes::new().with(Hidden, 4))?.model;
        Ok(gain.forward(&Tensor::from_fn(rank, &[2, 4], |_| 2.0)).to_local_vec())
    });
    assert_eq!(run.expect("the rank runs"), [vec![2.0; 8]]);
}

//! Functions over split dims, with sharded parameters, inputs that do not vary as the output does, and partial outputs.

use meshwright::layout::Axis;
use meshwright::nn::{Built, Sizes, build};
use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, Forward, Function, ResultView, apply};
use meshwright_tests::compare::{Report, distance, scalar_distance};
use meshwright_tests::data::numbers;
use meshwright_tests::run::on_mesh;

dims! { Batch @ data, Hidden, Ffn }

/// `x` where it is positive, else `x * slope`.
struct Prelu;

type Matrix<B, F> = ((B, F),);

impl<B: Dim, F: Dim> Function<Matrix<B, F>, ((F,),)> for Prelu {
    type Output = Tensor<(B, F)>;
    type Saved = ();

    fn path(&self) -> &str {
        "prelu"
    }

    fn forward_pass(&self, call: Forward<'_, Matrix<B, F>, ((F,),)>) {
        let Forward { inputs: [x], params: [slope], mut output, .. } = call;
        let (x, slope) = (x.to_f32(), slope.to_f32());
        write(&mut output, |i| if x[i] > 0.0 { x[i] } else { x[i] * slope[i % slope.len()] });
    }

    fn backward_pass(&self, call: Backward<'_, Matrix<B, F>, ((F,),), ()>) {
        let ([dx], [dslope]) = (call.input_gradients, call.param_gradients);
        let ([x], [slope]) = (call.inputs, call.params);
        let (x, slope, dy) = (x.to_f32(), slope.to_f32(), call.output_gradient.to_f32());
        let cols = slope.len();
        if let Some(mut dx) = dx.target() {
            write(&mut dx, |i| if x[i] > 0.0 { dy[i] } else { dy[i] * slope[i % cols] });
        }
        if let Some(mut dslope) = dslope.target() {
            let negative = |i: usize| if x[i] > 0.0 { 0.0 } else { dy[i] * x[i] };
            write(&mut dslope, |col| (col..x.len()).step_by(cols).map(negative).sum());
        }
    }
}

/// Each row of `x` times an element of `scale`.
struct ScaleRows;

type RowsAndScale<B, F> = ((B, F), (B,));

impl<B: Dim, F: Dim> Function<RowsAndScale<B, F>> for ScaleRows {
    type Output = Tensor<(B, F)>;
    type Saved = ();

    fn path(&self) -> &str {
        "scale_rows"
    }

    fn forward_pass(&self, call: Forward<'_, RowsAndScale<B, F>, ()>) {
        let Forward { inputs: [x, scale], mut output, .. } = call;
        let (x, scale, cols) = (x.to_f32(), scale.to_f32(), x.local_extents()[1].local);
        write(&mut output, |i| x[i] * scale[i / cols]);
    }

    fn backward_pass(&self, call: Backward<'_, RowsAndScale<B, F>, (), ()>) {
        let Backward { inputs: [x, scale], input_gradients: [dx, dscale], .. } = call;
        let cols = x.local_extents()[1].local;
        let (x, scale, dy) = (x.to_f32(), scale.to_f32(), call.output_gradient.to_f32());
        if let Some(mut dx) = dx.target() {
            write(&mut dx, |i| dy[i] * scale[i / cols]);
        }
        if let Some(mut dscale) = dscale.target() {
            write(&mut dscale, |row| (row * cols..(row + 1) * cols).map(|i| dy[i] * x[i]).sum());
        }
    }
}

/// The dot product of each row with a weight, over a split dim: a partial sum.
struct Dot;

type SplitRows<B, D, A> = ((B, Split<D, A>),);
type SplitWeight<D, A> = ((Split<D, A>,),);

impl<B: Dim, D: Local, A: Axis> Function<SplitRows<B, D, A>, SplitWeight<D, A>> for Dot {
    type Output = Partial<(B,), A>;
    type Saved = ();

    fn path(&self) -> &str {
        "dot"
    }

    fn forward_pass(&self, call: Forward<'_, SplitRows<B, D, A>, SplitWeight<D, A>>) {
        let Forward { inputs: [x], params: [weight], mut output, .. } = call;
        let (x, weight) = (x.to_f32(), weight.to_f32());
        let cols = weight.len();
        write(&mut output, |row| (0..cols).map(|col| x[row * cols + col] * weight[col]).sum());
    }

    fn backward_pass(&self, call: Backward<'_, SplitRows<B, D, A>, SplitWeight<D, A>, ()>) {
        let ([dx], [dweight]) = (call.input_gradients, call.param_gradients);
        let ([x], [weight]) = (call.inputs, call.params);
        let (x, weight, dy) = (x.to_f32(), weight.to_f32(), call.output_gradient.to_f32());
        let cols = weight.len();
        if let Some(mut dx) = dx.target() {
            write(&mut dx, |i| dy[i / cols] * weight[i % cols]);
        }
        if let Some(mut dweight) = dweight.target() {
            write(&mut dweight, |col| (0..dy.len()).map(|row| dy[row] * x[row * cols + col]).sum());
        }
    }
}

/// Writes every element of a result.
fn write(result: &mut ResultView<'_>, element: impl Fn(usize) -> f32) {
    result.write_f32(&(0..result.len()).map(element).collect::<Vec<_>>());
}

#[model]
struct Net {
    #[sharded(tp = "col")]
    up: Param<(Hidden, Ffn)>,
    slope: Param<(Split<Ffn, Tp>,)>,
    scale: Param<(Hidden,)>,
    weight: Param<(Split<Ffn, Tp>,)>,
}

#[forward]
impl Net {
    fn forward(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch,)> {
        let up: Tensor<(Batch, Split<Ffn, Tp>)> = x.contract(&self.up);
        let rows = (x * &self.scale).sum(Hidden);
        let y = apply(ScaleRows, (&apply(Prelu, (&up,), (&self.slope,)), &rows), ());
        apply(Dot, (&y,), (&self.weight,)).all_reduce()
    }
}

/// Runs `body` with a model and its loss on each rank of a mesh.
fn with_net<T: Send>(
    mesh: &str,
    body: impl Fn(&Built<Net>, &dyn Fn() -> Loss<(Batch,)>) -> T + Sync,
) -> T {
    let results = on_mesh(mesh, 1, |rank| {
        let mut sizes = Sizes::new().with(Hidden, 3).with(Ffn, 4);
        sizes.init_std = 0.5;
        let built = build::<Net>(rank, &sizes).unwrap();
        for param in built.params() {
            let len: usize = param.sizes().iter().product();
            let wave = |i: usize| (i as f32 * 1.7 + param.path().len() as f32).sin();
            param.write_global(&(0..len).map(wave).collect::<Vec<_>>());
        }
        let x: Tensor<(Batch, Hidden)> = numbers(rank, "x", &[4, 3]);
        body(&built, &|| {
            let y = built.model.forward(&x);
            Loss::mean_of(&(&y * &y))
        })
    });
    results.into_iter().next().unwrap()
}

fn gradients(mesh: &str) -> (f64, Vec<(String, Vec<f32>)>) {
    with_net(mesh, |built, loss| {
        let value = loss().reduce().value();
        let gradients = loss().backward().reduce();
        let of = |param: &meshwright::tensor::ParamRef| {
            (param.path().to_owned(), gradients.gather(param))
        };
        (value, built.params().iter().map(of).collect())
    })
}

#[test]
fn gradients_match_finite_differences() {
    let (_, analytic) = gradients("1");
    with_net("1", |built, loss| {
        for (param, (path, gradient)) in built.params().iter().zip(&analytic) {
            let values = param.to_local_vec();
            let difference = |i: usize| {
                let at = |step: f32| {
                    let mut moved = values.clone();
                    moved[i] += step;
                    param.write(&moved);
                    loss().reduce().value()
                };
                let step = 1.0 / 64.0;
                ((at(step) - at(-step)) / f64::from(2.0 * step)) as f32
            };
            let differences: Vec<f32> = (0..values.len()).map(difference).collect();
            param.write(&values);
            let distance = distance(gradient, &differences);
            assert!(distance < 2e-3, "`{path}`: {gradient:?} instead of {differences:?}");
        }
    });
}

#[test]
fn meshes_have_the_same_gradients() {
    let (value, expected) = gradients("1");
    let mut report = Report::default();
    for mesh in ["tp=2", "tp=4", "dp=2", "fsdp=2", "dp=2,tp=2", "fsdp=2,tp=2"] {
        let (got_value, got) = gradients(mesh);
        report.note("loss", mesh, scalar_distance(got_value, value), 1e-6);
        for ((path, got), (_, expected)) in got.iter().zip(&expected) {
            report.note("gradient", format!("`{path}` on {mesh}"), distance(got, expected), 1e-5);
        }
    }
    report.print();
}

#[test]
fn evaluation_records_nothing() {
    on_mesh("fsdp=2,tp=2", 1, |rank| {
        let built = build::<Net>(rank, &Sizes::new().with(Hidden, 3).with(Ffn, 4)).unwrap();
        let x: Tensor<(Batch, Hidden)> = numbers(rank, "x", &[4, 3]);
        let evaluated = rank.evaluate(|| built.model.forward(&x));
        let recorded = (&x * &built.model.scale).sum(Hidden);
        let gradients = Loss::mean_of(&(evaluated + recorded)).backward().reduce();
        for param in built.params() {
            let is_zero = gradients.gather(&param).iter().all(|gradient| *gradient == 0.0);
            assert_eq!(is_zero, param.path() != "scale", "`{}`", param.path());
        }
    });
}

//! Means of chosen elements, masks and shifts by documents, own targets and weights of samples, on meshes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use meshwright::backend::DType;
use meshwright::layout::AxisSet;
use meshwright::nn::build;
use meshwright::prelude::*;
use meshwright::tensor::Settings;
use meshwright::testing::{Observed, assert_mesh_independent};
use meshwright_tests::run::{Setup, on_mesh, on_setup_mesh};

dims! { Batch @ data, Others, Seq, Long @ cp, Keys, Hidden, Heads, HeadDim, Vocab }

const MESHES: [&str; 8] =
    ["tp=2", "tp=4", "dp=2", "fsdp=2", "dp=2,tp=2", "cp=2", "cp=4", "dp=2,cp=2,tp=2"];

fn sizes() -> Sizes {
    let sizes = Sizes::new().with(Hidden, 8).with(Heads, 4).with(HeadDim, 2).with(Vocab, 11);
    let mut sizes = sizes.with(Others, 4);
    sizes.init_std = 0.5;
    sizes
}

#[model]
struct Means {
    layer: Linear<Hidden, Hidden>,
}

type Stream = Tensor<(Batch, Split<Long, Tp>, Hidden)>;

/// A mean over the positions of a stream.
type MeanOf = fn(&Stream) -> Tensor<(Batch, Hidden)>;

/// Means along a dim that is split and distributed, of elements, of whole positions, and of none, against the quotient
/// of sum and count.
#[test]
fn means_of_chosen_elements() {
    assert_mesh_independent(MESHES, |rank| {
        let built = build::<Means>(rank, &sizes())?;
        let mut observed = Observed::new(rank);
        let x: Tensor<(Batch, Long, Hidden)> = Tensor::normal(rank, &[4, 16, 8], "x");
        let run = |mean: MeanOf| {
            let y = built.model.layer.forward(&x.slice(Long, Tp));
            let loss = Loss::mean_of(&(mean(&y) - 0.3).square());
            (loss.reduce().value(), loss.backward().reduce())
        };
        let each = |means: [MeanOf; 2]| {
            let [(a, ours), (b, reference)] = means.map(|mean| {
                let (loss, gradients) = run(mean);
                (loss, gradients.gather(&built.params()[0]))
            });
            assert_close(&[a as f32], &[b as f32]);
            assert_close(&ours, &reference);
            a
        };
        let of_elements = each([
            |y| y.across().mean_where(Long, &y.gt(0.2)),
            |y| {
                let y = y.gather(Long);
                let count = y.gt(0.2).count(Long).all_reduce().maximum(1.0);
                y.sum_where(Long, &y.gt(0.2)).all_reduce() / count
            },
        ]);
        observed.loss(of_elements);
        let of_positions = each([
            |y| y.across().mean_where(Long, &y.norm(Hidden).gt(1.0)),
            |y| {
                let y = y.gather(Long);
                let mask = y.norm(Hidden).gt(1.0);
                let count = mask.count(Long).all_reduce().maximum(1.0);
                y.sum_where(Long, &mask).all_reduce() / count
            },
        ]);
        observed.loss(of_positions);
        observed.loss(each([
            |y| y.across().mean_where(Long, &y.gt(1e9)),
            |y| y.gather(Long).mean(Long).all_reduce() * 0.0,
        ]));
        let (_, gradients) = run(|y| y.across().mean_where(Long, &y.gt(-0.1)));
        observed.gradients(&built, &gradients);
        Ok(observed)
    });
}

/// Numbers of elements above 256 are exact in bf16 in a mean, and refused as a count.
#[test]
fn counts_in_bf16() {
    let settings = Settings { compute: DType::Bf16, ..Setup::new(sizes()).settings };
    let setup = Setup { settings, ..Setup::new(sizes()) };
    for mesh in ["1", "tp=2"] {
        let found = on_setup_mesh(mesh, &setup, |rank| {
            let x: Tensor<(Batch, Seq)> =
                Tensor::from_fn(rank, &[1, 600], |at| if at[1] < 513 { 1.0 } else { -64.0 });
            let x = x.slice(Seq, Tp);
            assert_eq!(x.across().mean_where(Seq, &x.gt(0.0)).to_local_vec(), [1.0], "{mesh}");
            let counted =
                catch_unwind(AssertUnwindSafe(|| drop(x.gt(0.0).count(Seq).all_reduce())));
            *counted.unwrap_err().downcast::<String>().unwrap()
        });
        assert!(
            found[0].starts_with(
                "`Mask::count` of 600 elements along `Seq` in bf16, which has no exact numbers above 256"
            ),
            "{}",
            found[0]
        );
    }
}

#[model]
struct Towers {
    a: Linear<Hidden, HeadDim>,
    b: Linear<Hidden, HeadDim>,
    loss: CrossEntropy<Others>,
}

/// The own target of a sample is its column, in a batch and in its micro-batches, on any mesh.
#[test]
fn own_targets() {
    assert_mesh_independent(["dp=2", "fsdp=2", "tp=2", "dp=2,tp=2"], |rank| {
        let mut observed = Observed::new(rank);
        for count in [1, 2] {
            let built = build::<Towers>(rank, &sizes().with(Others, 8 / count))?;
            for index in 0..count {
                // Tensors of a micro-batch are made on the rank of its tokens.
                let rows = 8 / count / rank.degree_of(AxisSet::DATA);
                let tokens: Tokens<(Batch, Seq)> =
                    Tokens::from_micro_batch(rank, &[8, 1], [index, count], &vec![0; rows]);
                let [x, y] = ["x", "y"]
                    .map(|name| Tensor::<(Batch, Hidden)>::normal(tokens.rank(), &[8, 8], name));
                let (x, y) = (built.model.a.forward(&x), built.model.b.forward(&y));
                let scores = x.dot(&y.gather_as(Batch, Others), HeadDim, ());
                let loss = built.model.loss.forward(&scores, &Targets::diagonal(&scores));
                let own = (&x * &y).sum(HeadDim);
                let expected = Loss::mean_of(&(scores.log_sum_exp(Others) - own)).reduce().value();
                let found = loss.reduce().value();
                assert_close(&[found as f32], &[expected as f32]);
                observed.loss(found);
                observed.gradients(&built, &loss.backward().reduce());
            }
        }
        Ok(observed)
    });
}

#[test]
fn own_targets_need_a_column_for_each_sample() {
    let found = on_mesh("dp=2", 1, |rank| {
        let scores: Tensor<(Batch, Others)> = Tensor::normal(rank, &[4, 6], "scores");
        let refused = catch_unwind(AssertUnwindSafe(|| drop(Targets::diagonal(&scores))));
        *refused.unwrap_err().downcast::<String>().unwrap()
    });
    for text in found {
        assert!(
            text.starts_with("`Targets::diagonal` of scores with 6 columns for 4 samples"),
            "{text}"
        );
    }
}

/// A weight for each sample counts for each of its tokens.
#[test]
fn weights_of_samples() {
    assert_mesh_independent(MESHES, |rank| {
        let built = build::<Means>(rank, &sizes())?;
        let mut observed = Observed::new(rank);
        let x: Tensor<(Batch, Long, Hidden)> = Tensor::normal(rank, &[4, 16, 8], "x");
        let terms = || built.model.layer.forward(&x.slice(Long, Tp)).square().mean(Hidden);
        let of_samples: Weights<(Batch,)> = Weights::from_fn(rank, &[4], |at| at[0] as f32);
        let of_tokens: Weights<(Batch, Long)> = Weights::from_fn(rank, &[4, 16], |at| at[0] as f32);
        let expected = Loss::weighted_mean(&terms().gather(Long), &of_tokens);
        let loss = Loss::weighted_mean(&terms(), &of_samples);
        let (found, expected) = (loss.reduce().value(), expected.reduce().value());
        assert_close(&[found as f32], &[expected as f32]);
        observed.loss(found);
        observed.gradients(&built, &loss.backward().reduce());
        Ok(observed)
    });
}

#[model]
struct Documents {
    embed: Embedding<Vocab, Hidden>,
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(cp = "gather")]
    core: Attention<Heads, Heads, HeadDim>,
    #[init(constant(1.0))]
    conv: CausalConv<Hidden, 2>,
}

/// Returns the starts of documents of rows of 16 tokens: those of row `r` begin at multiples of `r + 3`.
fn starts(tokens: &Tokens<(Batch, Long)>) -> Vec<u32> {
    let rows = tokens.global_indices(Batch).into_iter();
    rows.flat_map(|row| (0..16).map(move |at| (at - at % (row + 3)) as u32)).collect()
}

/// Attention by hand that is masked by documents is that of the library, and a shift in documents is the convolution's.
#[test]
fn documents_by_hand() {
    assert_mesh_independent(["tp=2", "dp=2", "cp=2", "cp=4", "dp=2,cp=2,tp=2"], |rank| {
        let built = build::<Documents>(rank, &sizes())?;
        let model = &built.model;
        let mut observed = Observed::new(rank);
        let tokens: Tokens<(Batch, Long)> =
            Tokens::from_fn(rank, &[4, 16], |at| ((3 * at[0] + 5 * at[1]) % 11) as u32);
        let x = model.embed.forward(&tokens.with_documents(&starts(&tokens)));
        let (q, k, v) = (model.q.forward(&x), model.k.forward(&x), model.v.forward(&x));
        let [keys, values] = [&k, &v].map(|x| x.gather_as(Long, Keys));
        let scores = q.dot(&keys, HeadDim, (Batch, Heads)) * 0.5f32.sqrt();
        let visible = Mask::causal(Long, Keys) & Mask::documents(Long, Keys);
        let weights = scores.masked(&visible, f32::NEG_INFINITY).softmax();
        let by_hand =
            weights.dot(&values, Keys, (Batch, Heads)).permute((Batch, Long, Heads, HeadDim));
        let reference = model.core.forward(&(q, k, v));
        assert_close(&by_hand.to_local_vec(), &reference.to_local_vec());
        let before = x.shift_in_documents(Long, 1);
        assert_close(&before.to_local_vec(), &(model.conv.forward(&x) - &x).to_local_vec());
        let after = before.shift_in_documents(Long, -1);
        let heads: Tensor<(Batch, Long)> = x.norm(Hidden).shift_in_documents(Long, 2);
        let loss = Loss::mean_of(&by_hand.square().sum((Heads, HeadDim)).all_reduce())
            .and(Loss::mean_of(&after.square()))
            .and(Loss::mean_of(&heads));
        observed.gradients(&built, &loss.backward().reduce());
        Ok(observed)
    });
}

/// Compares numbers that are close to 1, also in runs with added rounding.
#[track_caller]
fn assert_close(found: &[f32], expected: &[f32]) {
    let is_close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-4;
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().zip(expected).all(is_close), "{found:?} {expected:?}");
}

/// Masks by documents are refused along a dim that is not that of the tokens.
#[test]
fn documents_of_other_dims() {
    let found = on_mesh("1", 1, |rank| {
        let model = build::<Documents>(rank, &sizes()).unwrap().model;
        let tokens: Tokens<(Batch, Long)> = Tokens::from_fn(rank, &[4, 16], |at| at[1] as u32 % 11);
        let x = model.embed.forward(&tokens.with_documents(&starts(&tokens)));
        let scores = x.dot(&x.gather_as(Long, Keys), Hidden, (Batch,));
        let swapped = || drop(scores.masked(&Mask::documents(Keys, Long), 0.0));
        let refused = catch_unwind(AssertUnwindSafe(swapped));
        *refused.unwrap_err().downcast::<String>().unwrap()
    });
    assert_eq!(
        found[0],
        "`Mask::documents` along `Keys` of a tensor shaped (Batch, Long, Keys): the tokens that it is computed from \
         have documents in their rows, but not along this dim; name the sequence of the tokens first, and keep the dim \
         of their samples"
    );
}

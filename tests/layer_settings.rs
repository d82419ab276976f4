//! Settings of norms and rotary embeddings by field and by layer.

use meshwright::nn::{
    Affine, Build, Layer, LayerNorm, Layers, NormOptions, RmsNorm, Rope, Sizes, Stack, build,
};
use meshwright::prelude::dims;
use meshwright::rotary::RopeParameters;
use meshwright::tensor::{Loss, Param, Tensor};
use meshwright::{forward, model};
use meshwright_tests::data::numbers;
use meshwright_tests::run::on_mesh;

dims! {
    Batch @ data,
    Seq,
    Heads,
    Hidden,
}

type Stream = Tensor<(Batch, Seq, Hidden)>;

#[model]
struct Norms {
    gain: Param<(Hidden,)>,
    norm: RmsNorm<Hidden>,
    inner: Inner,
}

#[model]
struct Inner {
    norm: Option<RmsNorm<Hidden>>,
}

fn sizes() -> Sizes {
    Sizes::new().with(Hidden, 8).with(Heads, 2).with_optional("norm", true)
}

/// A norm with an offset is that of a gain with the offset in it, to the bit.
#[test]
fn offset_is_added_to_the_gain() {
    on_mesh("1", 1, |rank| {
        let options = NormOptions { eps: 1e-3, offset: 1.0 };
        let mut sizes = sizes().with_norm("inner.norm", options);
        sizes.norm_eps = options.eps;
        let built = build::<Norms>(rank, &sizes).unwrap();
        let [plain, moved] = ["norm.weight", "inner.norm.weight"]
            .map(|path| built.params().into_iter().find(|param| param.path() == path).unwrap());
        assert_eq!((plain.to_local_vec(), moved.to_local_vec()), (vec![1.0; 8], vec![0.0; 8]));
        let weights: Vec<f32> = (0..8u8).map(|index| 0.3 * f32::from(index) - 1.1).collect();
        moved.write(&weights);
        plain.write(&weights.iter().map(|weight| 1.0 + weight).collect::<Vec<_>>());

        let x: Stream = numbers(rank, "x", &[1, 5, 8]);
        let probe: Stream = numbers(rank, "probe", &[1, 5, 8]);
        let gain = &built.model.gain;
        let results = [&built.model.norm, built.model.inner.norm.as_ref().unwrap()].map(|norm| {
            let y = norm.forward(&(&x * gain));
            let gradients = Loss::mean_of(&(&y * &probe)).backward().reduce();
            let of = [&plain, &moved].map(|param| gradients.gather(param));
            (y.to_local_vec(), gradients.gather(gain.handle()), of)
        });
        let [(y, dx, [dweight, _]), (moved_y, moved_dx, [_, moved_dweight])] = results;
        assert_eq!((y, dx, dweight), (moved_y, moved_dx, moved_dweight));

        sizes.norm_offset = 0.25;
        let built = build::<Norms>(rank, &sizes).unwrap();
        let initial: Vec<Vec<f32>> =
            built.params()[1..].iter().map(|of| of.to_local_vec()).collect();
        assert_eq!(initial, [vec![0.75; 8], vec![0.0; 8]]);
    });
}

#[model]
struct Rotating {
    rope: Rope<Hidden>,
}

#[forward]
impl Rotating {
    fn forward(&self, x: &Stream) -> Stream {
        self.rope.forward(x)
    }
}

#[model]
struct Layered {
    blocks: Stack<Rotating>,
}

#[forward]
impl Layered {
    fn forward(&self, x: &Stream) -> Stream {
        self.blocks.forward(x)
    }
}

/// Layers have the embeddings of the list, repeated; what is set for a field goes before it.
#[test]
fn layers_rotate_by_their_parameters() {
    on_mesh("1", 1, |rank| {
        let x: Stream = numbers(rank, "x", &[1, 5, 8]);
        let rotate = |theta, x: &Stream| {
            let mut sizes = Sizes::new().with(Hidden, 8);
            sizes.rope = RopeParameters::with_theta(theta);
            build::<Rotating>(rank, &sizes).unwrap().model.forward(x)
        };
        let mut sizes = Sizes::new().with(Hidden, 8).with(Layers, 4);
        sizes.ropes =
            [Some(50.0), None, Some(7.0)].map(|of| of.map(RopeParameters::with_theta)).into();
        let found = build::<Layered>(rank, &sizes).unwrap().model.forward(&x);
        let expected = rotate(50.0, &rotate(7.0, &rotate(50.0, &x)));
        assert_eq!(found.to_local_vec(), expected.to_local_vec());

        let none = sizes.clone().with_rope("blocks.rope", None);
        let found = build::<Layered>(rank, &none).unwrap().model.forward(&x);
        assert_eq!(found.to_local_vec(), x.to_local_vec());
        let same = sizes.with_rope("rope", RopeParameters::with_theta(3.0));
        let found = build::<Layered>(rank, &same).unwrap().model.forward(&x);
        let expected = (0..4).fold(x, |x, _| rotate(3.0, &x));
        assert_eq!(found.to_local_vec(), expected.to_local_vec());
    });
}

/// A key that all heads share is rotated as one of several heads.
#[test]
fn tensors_without_heads_rotate_as_one_head() {
    on_mesh("1", 1, |rank| {
        let x: Stream = numbers(rank, "x", &[2, 5, 8]);
        let sizes = Sizes::new().with(Hidden, 8).with(Heads, 1);
        let built = build::<Rotating>(rank, &sizes).unwrap();
        let of_head: Tensor<(Batch, Seq, Heads, Hidden)> =
            Tensor::from_block(rank, &[2, 5, 1, 8], &x.to_local_vec());
        let expected = built.model.rope.forward(&of_head);
        assert_eq!(built.model.forward(&x).to_local_vec(), expected.to_local_vec());
    });
}

#[model]
struct OverPairs {
    gain: Param<(Heads, Hidden)>,
    norm: RmsNorm<(Heads, Hidden)>,
}

/// A norm over a pair is that over one dim of as many elements, to the bit.
#[test]
fn norms_over_pairs_read_all_of_their_elements() {
    on_mesh("1", 1, |rank| {
        let pairs = Sizes::new().with(Hidden, 8).with(Heads, 2);
        let built = build::<OverPairs>(rank, &pairs).unwrap();
        let whole = build::<Norms>(rank, &sizes().with(Hidden, 16)).unwrap();
        let gains: Vec<f32> = (0..16u8).map(|index| 0.1 * f32::from(index) - 0.7).collect();
        let x: Tensor<(Batch, Seq, Heads, Hidden)> = numbers(rank, "x", &[2, 5, 2, 8]);
        let flat: Stream = Tensor::from_block(rank, &[2, 5, 16], &x.to_local_vec());
        let (model, other) = (&built.model, &whole.model);
        let weights = [&built.params()[1], &whole.params()[1]];
        weights.iter().for_each(|weight| weight.write(&gains));
        // A vector begins with ones, a matrix does not.
        let [of_pairs, of_one] = [model.gain.handle(), other.gain.handle()];
        of_pairs.write(&[1.0; 16]);
        let pairs = model.norm.forward(&(&x * &model.gain));
        let one = other.norm.forward(&(&flat * &other.gain));
        assert_eq!(pairs.to_local_vec(), one.to_local_vec());
        let gradients = Loss::mean_of(&pairs.square()).backward().reduce();
        let expected = Loss::mean_of(&one.square()).backward().reduce();
        assert_eq!(gradients.gather(weights[0]), expected.gather(weights[1]));
        assert_eq!(gradients.gather(of_pairs), expected.gather(of_one));
    });
}

#[model]
struct Biased {
    up: Affine<Hidden, Hidden>,
    down: Affine<Hidden, Hidden>,
}

/// The bias of an affine layer is one of its two parameters, if the model has it.
#[test]
fn affine_layers_have_a_bias_if_the_model_has_it() {
    on_mesh("1", 1, |rank| {
        let sizes = Sizes::new().with(Hidden, 8);
        let missing = build::<Biased>(rank, &sizes).err().unwrap().problems;
        assert_eq!(
            missing[0],
            "`down.bias`: is optional: say whether the model has it by `Sizes::with_optional(\"bias\", ..)`"
        );
        let sizes = sizes.with_optional("bias", false).with_optional("up.bias", true);
        let built = build::<Biased>(rank, &sizes).unwrap();
        let paths: Vec<String> = built.params().iter().map(|of| of.path().to_owned()).collect();
        assert_eq!(paths, ["up.weight", "up.bias", "down.weight"]);
        let bias = &built.params()[1];
        assert_eq!(bias.to_local_vec(), [0.0; 8]);
        let x: Stream = numbers(rank, "x", &[1, 5, 8]);
        let before = built.model.up.forward(&x).to_local_vec();
        bias.write(&[0.5; 8]);
        let after = built.model.up.forward(&x).to_local_vec();
        assert!(before.iter().zip(&after).all(|(before, after)| before + 0.5 == *after));
        let _ = built.model.down.forward(&x);
    });
}

#[model]
struct Centered {
    norm: LayerNorm<Hidden>,
}

#[forward]
impl Centered {
    fn forward(&self, x: &Stream) -> Stream {
        self.norm.forward(x)
    }
}

#[test]
fn wrong_settings_are_problems_of_the_model() {
    fn problems<M: Build>(sizes: &Sizes) -> Vec<String> {
        let of_rank = on_mesh("1", 1, |rank| build::<M>(rank, sizes).err().unwrap().problems);
        of_rank.into_iter().next().unwrap()
    }
    let nothing = "applies to nothing: the model has no norm in a field of this name; one inside a field that";
    let options = NormOptions::default();
    let found = problems::<Norms>(&sizes().with_norm("nrom", options).with_norm("gain", options));
    assert_eq!(found.len(), 2);
    for (problem, name) in found.iter().zip(["gain", "nrom"]) {
        let expected = format!("`Sizes::with_norm(\"{name}\", ..)` {nothing}");
        assert!(problem.starts_with(&expected), "{problem}");
    }
    let absent = sizes().with_optional("norm", false).with_norm("inner.norm", options);
    on_mesh("1", 1, |rank| assert!(build::<Norms>(rank, &absent).is_ok()));

    let wrong = sizes().with_norm("norm", NormOptions { eps: -1.0, offset: f32::NAN });
    let expected = [
        "`inner.norm`: the epsilon of its options is -1, and must be a finite number of at least 0",
        "`inner.norm`: the offset of its weight is NaN, and must be finite",
        "`norm`: the epsilon of its options is -1, and must be a finite number of at least 0",
        "`norm`: the offset of its weight is NaN, and must be finite",
    ];
    assert_eq!(problems::<Norms>(&wrong), expected);
    let mut gemma = Sizes::new().with(Hidden, 8);
    gemma.norm_offset = 1.0;
    let expected = "`norm`: the weight of a `LayerNorm` has no offset, which is 1 here; give the field its options by \
                    `Sizes::with_norm`";
    assert_eq!(problems::<Centered>(&gemma), [expected]);

    let mut ropes = Sizes::new().with(Hidden, 8).with_rope("norm", None);
    ropes.ropes = vec![None, Some(RopeParameters::default())];
    let found = problems::<Rotating>(&ropes);
    let expected =
        "`Sizes::with_rope(\"norm\", ..)` applies to nothing: the model has no `Rope` in a field";
    assert!(found[0].starts_with(expected), "{found:?}");
    let expected = "`rope`: the sizes have 2 rotary embeddings for the layers of a stack, but this `Rope` is not in a \
                    `Stack`; set one, or another for this field by `Sizes::with_rope`";
    assert!(found.iter().any(|problem| problem == expected), "{found:?}");
}

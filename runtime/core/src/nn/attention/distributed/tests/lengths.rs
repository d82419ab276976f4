//! One padding with sequences of several lengths.

use super::{Batch, HeadDim, Heads, STYLES, Seq, sizes, with_style};
use crate::nn::{Attention, Bidirectional, Layer, Padding, Sizes, build};
use crate::tensor::{Rank, Tensor};
use meshwright_comm::{CommError, launch};
use meshwright_cpu::CpuBackend;
use meshwright_macros::{forward, model};
use meshwright_mesh::{Extent, MeshShape};

type Operand = Tensor<(Batch, Seq, Heads, HeadDim)>;

#[model(crate = crate)]
struct Core {
    #[sharded(cp = "ring")]
    core: Attention<Heads, Heads, HeadDim, Bidirectional>,
}

#[forward(crate = crate)]
impl Core {
    fn forward(&self, (x, padding): &(Operand, Padding<(Batch, Seq)>)) -> Operand {
        self.core.forward(&(x.clone(), x.clone(), x.clone(), padding))
    }
}

const VALID: [std::ops::Range<usize>; 2] = [2..7, 0..4];

/// The outputs of a rank for sequences of these lengths, one after the other with the same padding, and its positions.
type Outputs = Vec<(Extent, Vec<f32>)>;

fn on(mesh: &str, sizes: &Sizes, lengths: [usize; 3]) -> Vec<Outputs> {
    let shape: MeshShape = mesh.parse().unwrap();
    let of_ranks = launch(&shape, |comms| {
        let rank = Rank::new(comms, Box::new(CpuBackend::new(1).unwrap()), 7);
        let model = build::<Core>(&rank, sizes).unwrap().model;
        let padding = Padding::from_block(&rank, VALID.len(), &VALID);
        let output = |seq: usize| {
            let value = |at: &[usize]| ((at[0] * 5 + at[1] * 3 + at[2] * 7 + at[3]) as f32).sin();
            let x: Operand = Tensor::from_fn(&rank, &[VALID.len(), seq, 4, 4], value);
            let out = model.forward(&(x.clone(), padding.clone()));
            (x.local_extents()[1], out.to_local_vec())
        };
        Ok::<_, CommError>(lengths.map(output).into_iter().collect())
    });
    of_ranks.unwrap_or_else(|error| panic!("{mesh}: {error}"))
}

/// Longer, then shorter, and the other way around.
#[test]
fn padding_is_that_of_any_length() {
    for lengths in [[16, 8, 16], [8, 16, 8]] {
        // Each with a padding of its own.
        let alone = lengths.map(|seq| on("dp=1", &sizes(), [seq; 3])[0][0].1.clone());
        let rows = |out: &[f32]| out.chunks(16).map(<[f32]>::to_vec).collect::<Vec<_>>();
        let together = &on("dp=1", &sizes(), lengths)[0];
        for ((_, out), alone) in together.iter().zip(&alone) {
            assert_eq!(out, alone, "one rank, {lengths:?}");
        }
        for (mesh, style) in STYLES.into_iter().flat_map(|s| [("cp=2", s), ("cp=4", s)]) {
            for rank in on(mesh, &with_style(style, sizes()), lengths) {
                for (((positions, out), alone), seq) in rank.iter().zip(&alone).zip(lengths) {
                    let (out, alone) = (rows(out), rows(alone));
                    let indices = (0..VALID.len())
                        .flat_map(|sample| positions.positions().map(move |at| sample * seq + at));
                    assert_eq!(out.len(), VALID.len() * positions.local);
                    for (out, at) in out.iter().zip(indices) {
                        for (a, b) in out.iter().zip(&alone[at]) {
                            let name = || format!("{mesh} {style}, {lengths:?}, row {at}");
                            assert!((a - b).abs() < 1e-6, "{}: {a} instead of {b}", name());
                        }
                    }
                }
            }
        }
    }
}

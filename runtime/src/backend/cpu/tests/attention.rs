use super::{CpuBackend, assert_close, assert_same_on_any_threads, on_every_backend, values, wide};
use crate::backend::{AttentionArgs, AttentionBackwardArgs, AttentionShape, Backend, Band};

fn shape(
    batch: usize,
    seq: usize,
    [heads, kv_heads, head_dim]: [usize; 3],
    causal: bool,
) -> AttentionShape {
    let scale = 1.3 / (head_dim as f32).sqrt();
    let band = if causal { Band::CAUSAL } else { Band::ALL };
    AttentionShape { scale, ..AttentionShape::new(batch, seq, [heads, kv_heads, head_dim], band) }
}

struct Case {
    s: AttentionShape,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    dout: Vec<f32>,
}

impl Case {
    fn new(s: AttentionShape) -> Case {
        let rows = s.batch * s.queries.len * s.head_dim;
        let (q, kv) = (rows * s.heads, rows * s.kv_heads);
        let sharp = |x: Vec<f32>| x.into_iter().map(|x| 3.0 * x).collect();
        Case { s, q: sharp(values(q, 1)), k: values(kv, 2), v: values(kv, 3), dout: values(q, 4) }
    }

    /// `[out, lse, dq, dk, dv]`.
    fn run(&self, cpu: &dyn Backend) -> [Vec<f32>; 5] {
        let Case { s, q, k, v, dout } = self;
        let mut out = vec![f32::NAN; q.len()];
        let mut lse = vec![f32::NAN; s.batch * s.queries.len * s.heads];
        let [q, k, v, dout] = [q, k, v, dout].map(|x| x[..].into());
        cpu.attention(
            s,
            AttentionArgs {
                q,
                k,
                v,
                ranges: None,
                bias: None,
                sinks: None,
                out: (&mut out[..]).into(),
                lse: (&mut lse[..]).into(),
            },
        );
        let mut dq = vec![f32::NAN; q.len()];
        let mut dk = vec![f32::NAN; k.len()];
        let mut dv = vec![f32::NAN; k.len()];
        cpu.attention_backward(
            s,
            AttentionBackwardArgs {
                q,
                k,
                v,
                ranges: None,
                bias: None,
                sinks: None,
                out: (&out[..]).into(),
                accumulate: false,
                dbias: None,
                dsinks: None,
                lse: (&lse[..]).into(),
                dout,
                dq: (&mut dq[..]).into(),
                dk: (&mut dk[..]).into(),
                dv: (&mut dv[..]).into(),
            },
        );
        [out, lse, dq, dk, dv]
    }

    /// The same by the textbook, in f64.
    fn reference(&self) -> [Vec<f64>; 5] {
        let &AttentionShape { batch, heads, kv_heads, head_dim, band, .. } = &self.s;
        let seq = self.s.queries.len;
        let scale = f64::from(self.s.scale);
        let [q, k, v, dout] = [&self.q, &self.k, &self.v, &self.dout].map(|x| wide(x));
        let mut out = vec![0.0; q.len()];
        let mut lse = vec![0.0; batch * heads * seq];
        let (mut dq, mut dk, mut dv) = (vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; k.len()]);
        for (b, h, i) in triples(batch, heads, seq) {
            let query = ((b * seq + i) * heads + h) * head_dim;
            let key = |j: usize| ((b * seq + j) * kv_heads + h / (heads / kv_heads)) * head_dim;
            let seen = band.visible(i, seq).end;
            let scores: Vec<f64> = (0..seen)
                .map(|j| scale * (0..head_dim).map(|d| q[query + d] * k[key(j) + d]).sum::<f64>())
                .collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = scores.iter().map(|s| (s - max).exp()).sum();
            lse[(b * heads + h) * seq + i] = max + total.ln();
            let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp() / total).collect();
            for (j, weight) in weights.iter().enumerate() {
                for d in 0..head_dim {
                    out[query + d] += weight * v[key(j) + d];
                }
            }
            let shift: f64 = (0..head_dim).map(|d| dout[query + d] * out[query + d]).sum();
            for (j, weight) in weights.iter().enumerate() {
                let dweight: f64 = (0..head_dim).map(|d| dout[query + d] * v[key(j) + d]).sum();
                let dscore = weight * (dweight - shift) * scale;
                for d in 0..head_dim {
                    dv[key(j) + d] += weight * dout[query + d];
                    dq[query + d] += dscore * k[key(j) + d];
                    dk[key(j) + d] += dscore * q[query + d];
                }
            }
        }
        [out, lse, dq, dk, dv]
    }
}

fn triples(a: usize, b: usize, c: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..a).flat_map(move |x| (0..b).flat_map(move |y| (0..c).map(move |z| (x, y, z))))
}

const NAMES: [&str; 5] = ["out", "lse", "dq", "dk", "dv"];

#[test]
fn forward_and_backward_follow_the_formula() {
    for causal in [true, false] {
        for s in [
            shape(2, 7, [2, 1, 8], causal),
            shape(1, 1, [1, 1, 2], causal),
            shape(1, 64, [2, 2, 64], causal),
            shape(2, 65, [4, 2, 18], causal),
            shape(1, 129, [3, 3, 34], causal),
            shape(1, 515, [2, 1, 16], causal),
            shape(1, 640, [1, 1, 128], causal),
        ] {
            let case = Case::new(s);
            let expected = case.reference();
            on_every_backend(|cpu| {
                for ((name, got), expected) in NAMES.iter().zip(case.run(cpu)).zip(&expected) {
                    assert_close(&format!("{name} of {s:?}"), &got, expected, 3e-6);
                }
            });
        }
    }
}

#[test]
fn results_are_the_same_on_any_number_of_threads() {
    let case = Case::new(shape(2, 100, [4, 2, 16], true));
    assert_same_on_any_threads("attention", |cpu| case.run(cpu).concat());
}

#[test]
fn a_nan_reaches_every_row_that_sees_it_and_no_other() {
    let mut case = Case::new(shape(1, 200, [1, 1, 8], true));
    case.k[70 * 8] = f32::NAN;
    on_every_backend(|cpu| {
        let [out, lse, ..] = case.run(cpu);
        for (i, row) in out.chunks_exact(8).enumerate() {
            assert_eq!(row[0].is_nan(), i >= 70, "row {i}");
            assert_eq!(lse[i].is_nan(), i >= 70, "row {i}");
        }
    });
}

#[test]
fn operations_are_counted_as_executed() {
    let cpu = CpuBackend::new(1).expect("one thread starts nothing");
    Case::new(shape(1, 128, [1, 1, 8], false)).run(&cpu);
    assert_eq!(cpu.flops(), (4 + 10) * 128 * 128 * 8);
}

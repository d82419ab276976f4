//! A case of context-parallel attention: its operands, its results in f64, and its results on ranks.

use std::ops::Range;
use std::sync::Arc;

use crate::layout::{AxisId, AxisSet};
use crate::tensor::{Extent, Rank, Settings, VisibleRows};
use meshwright_backend::{AttentionShape, Band, Buffer, Category, DType, DistanceBias};
use meshwright_comm::{CommError, RankComms, Site, launch};
use meshwright_cpu::CpuBackend;

use super::super::super::score_operands::{ScoreGradients, ScoreOperands};
use super::super::call::ContextCall;
use super::super::gather::KeyGather;
use super::super::local::OutputGradient;
use super::super::ring::RingAttention;
use super::super::ulysses::{ExchangedAttention, UlyssesAttention};

/// Style of distributed attention.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Style {
    Ring,
    Gather,
    /// Exchange of heads among so many ranks: Ulysses if it is all of them, else with a ring of the others.
    Exchange(usize),
}

#[derive(Debug, Clone)]
pub struct Case {
    pub seq: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub value_dim: usize,
    pub band: Band,
    /// Lengths of the documents of each sample.
    pub documents: Option<[Vec<usize>; BATCH]>,
    /// Valid positions of each sample, which all of its queries see.
    pub padding: Option<[Range<usize>; BATCH]>,
    /// Has a bias that falls with the distance, in each head another one.
    pub has_bias: bool,
    /// The largest distance with a bias of its own; farther ones have the same.
    pub bias_distance: usize,
    pub has_sinks: bool,
    /// Number of the draw of random operands.
    pub draw: u64,
}

pub const BATCH: usize = 2;

/// Arrays in the order of positions: queries, keys, values and the gradient of the output.
pub type Arrays = [Vec<f32>; 4];

/// The output and the gradients of queries, keys and values in the order of positions, and the gradients of the sinks
/// and of the bias.
pub type Results<T> = [Vec<T>; 6];

impl Case {
    /// Creates causal attention.
    pub fn causal(seq: usize, heads: usize, kv_heads: usize) -> Case {
        let (head_dim, value_dim, band) = (8, 8, Band::CAUSAL);
        Case {
            seq,
            heads,
            kv_heads,
            head_dim,
            value_dim,
            band,
            documents: None,
            padding: None,
            has_bias: false,
            bias_distance: seq - 1,
            has_sinks: false,
            draw: 0,
        }
    }

    /// Number of distances before and after a query that have biases of their own.
    fn last_distance(&self) -> usize {
        self.bias_distance.min(self.seq - 1)
    }

    /// Index of a distance in the biases.
    fn bias_at(&self, head: usize, distance: isize) -> usize {
        let last = self.last_distance() as isize;
        let index = distance.clamp(-last, last) + last;
        head * (2 * self.last_distance() + 1) + index as usize
    }

    /// Elements of the sinks and of the biases, none of those that it does not have.
    fn parameters(&self) -> [usize; 2] {
        let biases = self.heads * (2 * self.last_distance() + 1);
        [(self.has_sinks, self.heads), (self.has_bias, biases)]
            .map(|(exists, len)| if exists { len } else { 0 })
    }

    /// Biases `[heads, distances]`.
    fn biases(&self) -> Vec<f32> {
        let last = self.last_distance() as isize;
        let of_head = |head: usize| {
            (-last..=last).map(move |distance| {
                let slope = if distance < 0 { 0.11 } else { 0.07 };
                -slope * (head + 1) as f32 * distance.unsigned_abs() as f32
            })
        };
        (0..self.heads).flat_map(of_head).collect()
    }

    fn sinks(&self) -> Vec<f32> {
        (0..self.heads).map(|head| 0.5 * head as f32 - 0.8).collect()
    }

    /// Elements of one position of queries, keys, values and the output.
    pub fn rows(&self) -> [usize; 4] {
        [
            self.heads * self.head_dim,
            self.kv_heads * self.head_dim,
            self.kv_heads * self.value_dim,
            self.heads * self.value_dim,
        ]
    }

    pub fn shape(&self, positions: usize) -> AttentionShape {
        let sizes = [self.heads, self.kv_heads, self.head_dim];
        let shape = AttentionShape::new(BATCH, positions, sizes, self.band);
        AttentionShape { value_dim: self.value_dim, ..shape }
    }

    pub fn operands(&self) -> Arrays {
        let mut state = 0x2545_f491_4f6c_dd1d_u64 ^ (self.draw << 20);
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1 << 24) as f32 * 2.0 - 1.0
        };
        self.rows().map(|row| (0..BATCH * self.seq * row).map(|_| next()).collect())
    }

    /// Returns, for each position of each sample, the position at which its document or the valid positions begin, and
    /// that after their end.
    pub fn document_ranges(&self) -> Option<[Vec<u32>; 2]> {
        if let Some(padding) = &self.padding {
            let of_all = |end: fn(&Range<usize>) -> usize| {
                padding.iter().flat_map(|valid| vec![end(valid) as u32; self.seq]).collect()
            };
            return Some([of_all(|valid| valid.start), of_all(|valid| valid.end)]);
        }
        let documents = self.documents.as_ref()?;
        let [mut starts, mut ends] = [Vec::new(), Vec::new()];
        for lengths in documents {
            let mut start = 0;
            for &length in lengths {
                starts.extend(vec![start as u32; length]);
                start += length;
                ends.extend(vec![start as u32; length]);
            }
            assert_eq!(start, self.seq, "documents fill a sample");
        }
        Some([starts, ends])
    }

    /// Computes the results in f64, pair by pair.
    pub fn reference(&self) -> Results<f64> {
        self.reference_of(self.operands())
    }

    /// Computes the results of other operands in f64.
    pub fn reference_of(&self, operands: Arrays) -> Results<f64> {
        let [q, k, v, dout] = operands.map(|x| x.into_iter().map(f64::from).collect());
        let (q, k, v, dout): (Vec<f64>, Vec<f64>, Vec<f64>, Vec<f64>) = (q, k, v, dout);
        let [q_row, k_row, v_row, out_row] = self.rows();
        let visible = self.document_ranges();
        let (biases, sinks) = (self.biases(), self.sinks());
        let [mut dsinks, mut dbias] = self.parameters().map(|len| vec![0.0; len]);
        let mut out = vec![0.0; dout.len()];
        let [mut dq, mut dk, mut dv] = [&q, &k, &v].map(|x| vec![0.0; x.len()]);
        let scale = f64::from(self.shape(self.seq).scale);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let add = |a: &mut [f64], factor: f64, b: &[f64]| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += factor * b);
        };
        for (sample, head) in (0..BATCH).flat_map(|s| (0..self.heads).map(move |h| (s, h))) {
            let kv_head = head * self.kv_heads / self.heads;
            let at = |position: usize, row: usize, head: usize, dim: usize| -> Range<usize> {
                let start = (sample * self.seq + position) * row + head * dim;
                start..start + dim
            };
            for query in 0..self.seq {
                let visible = visible.as_ref().map(|[starts, ends]| {
                    let at = sample * self.seq + query;
                    starts[at] as usize..ends[at] as usize
                });
                let sees = |key: &usize| {
                    visible.as_ref().is_none_or(|visible| visible.contains(key))
                        && self.band.before.is_none_or(|before| key + before >= query)
                        && self.band.after.is_none_or(|after| *key <= query + after)
                };
                let keys: Vec<usize> = (0..self.seq).filter(sees).collect();
                let query_at = at(query, q_row, head, self.head_dim);
                let out_at = at(query, out_row, head, self.value_dim);
                let key_at = |key: usize| at(key, k_row, kv_head, self.head_dim);
                let value_at = |key: usize| at(key, v_row, kv_head, self.value_dim);
                let bias_at = |key: usize| self.bias_at(head, key as isize - query as isize);
                let score = |key: &usize| {
                    let bias = if self.has_bias { f64::from(biases[bias_at(*key)]) } else { 0.0 };
                    scale * dot(&q[query_at.clone()], &k[key_at(*key)]) + bias
                };
                let exps: Vec<f64> = keys.iter().map(|key| score(key).exp()).collect();
                let sink = if self.has_sinks { f64::from(sinks[head]).exp() } else { 0.0 };
                let sum = exps.iter().sum::<f64>() + sink;
                for (key, exp) in keys.iter().zip(&exps) {
                    add(&mut out[out_at.clone()], exp / sum, &v[value_at(*key)]);
                }
                let dout = &dout[out_at.clone()];
                let delta = dot(dout, &out[out_at]);
                if self.has_sinks {
                    dsinks[head] -= sink / sum * delta;
                }
                for (key, exp) in keys.iter().zip(&exps) {
                    let weight = exp / sum;
                    let dscore = weight * (dot(dout, &v[value_at(*key)]) - delta);
                    if self.has_bias {
                        dbias[bias_at(*key)] += dscore;
                    }
                    let dscore = dscore * scale;
                    add(&mut dv[value_at(*key)], weight, dout);
                    add(&mut dq[query_at.clone()], dscore, &k[key_at(*key)]);
                    add(&mut dk[key_at(*key)], dscore, &q[query_at.clone()]);
                }
            }
        }
        [out, dq, dk, dv, dsinks, dbias]
    }

    /// Computes the results on `ranks` ranks.
    pub fn on_ranks(&self, ranks: usize, style: Style) -> RankResults {
        self.on_ranks_with(ranks, style, DType::F32, |comms| comms)
    }

    /// Computes the results on `ranks` ranks with communicators that `change` has changed.
    pub fn on_ranks_with(
        &self,
        ranks: usize,
        style: Style,
        dtype: DType,
        change: impl Fn(RankComms) -> RankComms + Sync,
    ) -> RankResults {
        let operands = self.operands();
        let of_ranks =
            self.on_each_rank(ranks, dtype, change, |call| self.on_rank(call, style, &operands));
        let mut all = RankResults { arrays: Default::default(), bytes: Vec::new() };
        let [q_row, k_row, v_row, out_row] = self.rows();
        for (index, (row, array)) in
            [out_row, q_row, k_row, v_row].into_iter().zip(&mut all.arrays).enumerate()
        {
            array.resize(BATCH * self.seq * row, f32::NAN);
            for (rank, (of_rank, _)) in of_ranks.iter().enumerate() {
                for (at, own) in self.row_ranges(rank, ranks, row).zip(of_rank[index].chunks(row)) {
                    array[at].copy_from_slice(own);
                }
            }
        }
        // The sum over ranks is that of the gradient of a parameter.
        for index in 4..6 {
            all.arrays[index] = (0..of_ranks[0].0[index].len())
                .map(|at| of_ranks.iter().map(|(of_rank, _)| of_rank[index][at]).sum())
                .collect();
        }
        all.bytes = of_ranks.into_iter().map(|(_, bytes)| bytes).collect();
        all
    }

    /// Runs `body` with a call on each of `ranks` ranks.
    pub fn on_each_rank<T: Send>(
        &self,
        ranks: usize,
        dtype: DType,
        change: impl Fn(RankComms) -> RankComms + Sync,
        body: impl Fn(&ContextCall<'_>) -> T + Sync,
    ) -> Vec<T> {
        let mesh = format!("cp={ranks}").parse().unwrap();
        let documents = self.document_ranges();
        let of_ranks = launch(&mesh, |comms| {
            let backend = Box::new(CpuBackend::new(1).unwrap());
            let settings = Settings { compute: dtype, ..Settings::new(0) };
            let rank = Rank::with_settings(change(comms), backend, settings);
            let group = rank.process_group(AxisSet::of(AxisId::Cp));
            let site = Site::new("attn.core");
            let (shape, seq) = (self.shape(self.seq / ranks), self.seq);
            let upload = |values: &[f32]| rank.allocator().copy_of(values, Category::Activations);
            let (biases, sinks) = (upload(&self.biases()), upload(&self.sinks()));
            let bias = DistanceBias {
                values: biases.view(),
                distances: 2 * self.last_distance() + 1,
                zero: self.last_distance(),
            };
            let scores = ScoreOperands {
                bias: self.has_bias.then_some(bias),
                sinks: self.has_sinks.then(|| sinks.view()),
            };
            let visible =
                documents.clone().map(|[starts, ends]| VisibleRows::new(seq, starts, ends));
            let (visible, group, site) = (visible.as_ref(), &group, &site);
            let call = ContextCall { rank: &rank, group, site, shape, seq, visible, scores };
            Ok::<_, CommError>(body(&call))
        });
        of_ranks.unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    /// Computes the results of one rank, and the bytes that it has sent in forward and in backward.
    pub fn on_rank(
        &self,
        call: &ContextCall<'_>,
        style: Style,
        operands: &Arrays,
    ) -> (Results<f32>, [u64; 2]) {
        let ContextCall { rank, group, .. } = *call;
        let [mut dsinks, mut dbias] = self.parameters().map(|len| call.zeros(DType::F32, len));
        let dscores = ScoreGradients {
            bias: self.has_bias.then(|| dbias.view_mut()),
            sinks: self.has_sinks.then(|| dsinks.view_mut()),
        };
        let part = |(data, row): (&Vec<f32>, usize)| -> Buffer {
            let ranges = self.row_ranges(group.rank(), group.size(), row);
            let own: Vec<f32> = ranges.flat_map(|at| data[at].iter().copied()).collect();
            let own = rank.allocator().copy_of(&own, Category::Activations);
            call.narrow(own.view())
        };
        let mut parts = operands.iter().zip(self.rows()).map(part);
        let [q, k, v, dout] = [(); 4].map(|()| parts.next().unwrap());
        let start = group.comm_bytes();
        let forward_end;
        let (out, gradients) = match style {
            Style::Exchange(size) => {
                let ulysses = UlyssesAttention::new(call, size);
                let (out, of) = ulysses.forward(q.view(), k.view(), v.view());
                forward_end = group.comm_bytes();
                let ExchangedAttention { q, k, v, out: exchanged, lse } = of;
                let [q, k, v, exchanged, lse] = [q, k, v, exchanged, lse].map(Arc::new);
                let of = ExchangedAttention { q, k, v, out: exchanged, lse };
                (out, ulysses.backward(&of, dout.view(), dscores))
            }
            Style::Ring | Style::Gather => {
                let (ring, gather) = (RingAttention::new(call, 1), KeyGather::new(call));
                let (out, lse) = match style {
                    Style::Ring => ring.forward(q.view(), k.view(), v.view()),
                    _ => gather.forward(q.view(), k.view(), v.view()),
                };
                forward_end = group.comm_bytes();
                let (lse, dout) = (lse.view(), dout.view());
                let of = OutputGradient { q: q.view(), out: out.view(), lse, dout };
                let gradients = match style {
                    Style::Ring => ring.backward(&of, k.view(), v.view(), dscores),
                    _ => gather.backward(&of, k.view(), v.view(), dscores),
                };
                (out, gradients)
            }
        };
        let [dq, dk, dv] = gradients;
        let results = [out, dq, dk, dv, dsinks, dbias].map(|data| rank.read(data.view()));
        (results, [forward_end - start, group.comm_bytes() - forward_end])
    }

    /// Returns the elements of each position of a rank in arrays of all positions, in local order.
    fn row_ranges(
        &self,
        rank: usize,
        ranks: usize,
        row: usize,
    ) -> impl Iterator<Item = Range<usize>> + use<> {
        let (extent, seq) = (Extent::zig_zag(self.seq, rank, ranks), self.seq);
        let indices = move |sample: usize| extent.positions().map(move |at| sample * seq + at);
        (0..BATCH).flat_map(indices).map(move |at| at * row..(at + 1) * row)
    }
}

pub struct RankResults {
    pub arrays: Results<f32>,
    /// Bytes that each rank has sent in forward and in backward.
    pub bytes: Vec<[u64; 2]>,
}

/// Returns the largest difference, NaN if there is one.
pub fn largest_difference(a: &[f32], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - b).abs());
    differences.fold(0.0, |largest, x| if x.is_nan() || x > largest { x } else { largest })
}

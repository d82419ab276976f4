//! Ring attention: each rank keeps its queries, and keys and values travel around a ring of ranks (Liu et al. 2023,
//! "Ring Attention with Blockwise Transformers").

use std::sync::Arc;

use crate::tensor::{Extent, SpanStart, scope};
use meshwright_backend::{Buffer, DType, View};
use meshwright_comm::PendingCall;

use super::super::score_operands::ScoreGradients;
use super::call::{ContextCall, split_at};
use super::local::{KeySource, LocalAttention, MergedAttention, OutputGradient};

/// One rank in a ring among the members of a process group that have the same index modulo `stride`.
///
/// With `stride` 1 the ring is the whole group. With a `stride` of the size of the group it is this rank alone, and
/// nothing is sent.
pub(super) struct RingAttention<'a> {
    call: &'a ContextCall<'a>,
    stride: usize,
    /// Ranks of the ring.
    size: usize,
    /// Position of this rank in the ring.
    position: usize,
    local: LocalAttention<'a>,
}

/// Transfer of keys and values from the previous rank of the ring.
struct Hop {
    /// Number of the hop; hop 0 has this rank's own keys.
    number: usize,
    arriving: PendingCall,
    /// Span from the start of the transfer to the end of the wait for it.
    span: Option<SpanStart>,
}

impl<'a> RingAttention<'a> {
    /// Creates a ring whose neighbors are `stride` group ranks apart. The shape of `call` has the sizes of a rank of
    /// the ring, whose queries and keys are at the same positions.
    pub fn new(call: &'a ContextCall<'a>, stride: usize) -> RingAttention<'a> {
        let (size, position) = (call.group.size() / stride, call.group.rank() / stride);
        let queries = Extent::zig_zag(call.seq, position, size);
        let local = LocalAttention::new(call, queries);
        RingAttention { call, stride, size, position, local }
    }

    /// Computes the output, in the compute dtype, and the log-sum-exp.
    pub fn forward(&self, q: View, k: View, v: View) -> (Buffer, Buffer) {
        let rank = self.call.rank;
        if self.size == 1 {
            let mut out = rank.alloc_activation(self.local.out_len());
            let mut lse = rank.alloc_statistics(self.local.lse_len());
            let source = KeySource { positions: self.positions(0), k, v };
            self.local.attend_all(q, &source, out.view_mut(), lse.view_mut());
            return (out, lse);
        }
        let mut kv = Arc::new(self.call.concatenate(k, v));
        let mut merged = MergedAttention::new(&self.local);
        for hop in 0..self.size {
            // A hop is started before the work that hides it.
            let next = self.start_hop(hop, &kv);
            self.trace_hop("attention", hop, || {
                self.local.attend(q, &self.key_source(hop, &kv), &mut merged);
            });
            if let Some(next) = next {
                kv = Arc::new(self.finish_hop(next));
            }
        }
        drop(kv);
        let (out, lse) = merged.into_results();
        (self.call.narrow(out.view()), lse)
    }

    /// Computes the gradients of queries, keys and values, in the compute dtype. Gradients of keys and values travel
    /// with the keys, one hop behind them, and are at their own rank after one more hop. The gradients of the scores'
    /// operands are added to `dscores`.
    pub fn backward(
        &self,
        of: &OutputGradient,
        k: View,
        v: View,
        mut dscores: ScoreGradients,
    ) -> [Buffer; 3] {
        let rank = self.call.rank;
        if self.size == 1 {
            let [mut dq, mut dk, mut dv] =
                [of.q, k, v].map(|data| rank.alloc_activation(data.len()));
            let source = KeySource { positions: self.positions(0), k, v };
            let gradients = [&mut dq, &mut dk, &mut dv].map(Buffer::view_mut);
            self.local.backward(of, &source, false, gradients, &mut dscores);
            return [dq, dk, dv];
        }
        let mut kv = Arc::new(self.call.concatenate(k, v));
        let mut dq = self.call.zeros(DType::F32, of.q.len());
        let mut sum: Option<PendingCall> = None;
        for hop in 0..self.size {
            let next = self.start_hop(hop, &kv);
            let mut part = self.call.zeros(DType::F32, kv.len());
            let [dk, dv] = split_at(part.view_mut(), self.call.k_len());
            let gradients = [dq.view_mut(), dk, dv];
            self.trace_hop("attention backward", hop, || {
                self.local.backward(of, &self.key_source(hop, &kv), true, gradients, &mut dscores);
            });
            if let Some(sum) = sum {
                // The gradients of these keys from the ranks that had them before.
                let sum = self.call.wait_for_buffer(sum);
                rank.backend().add_assign(part.view_mut(), sum.view());
            }
            sum = Some(self.send_to_next(Arc::new(part)));
            if let Some(next) = next {
                kv = Arc::new(self.finish_hop(next));
            }
        }
        let sum = self.call.wait_for_buffer(sum.expect("a ring has a hop"));
        let [dk, dv] = self.call.keys_and_values(&sum);
        [dq.view(), dk, dv].map(|gradient| self.call.narrow(gradient))
    }

    /// Returns the keys and values that this rank holds in a hop.
    fn key_source<'k>(&self, hop: usize, kv: &'k Buffer) -> KeySource<'k> {
        let [k, v] = self.call.keys_and_values(kv);
        KeySource { positions: self.positions(hop), k, v }
    }

    /// Returns the positions of the keys that this rank holds in a hop.
    fn positions(&self, hop: usize) -> Extent {
        let source = (self.position + self.size - hop) % self.size;
        Extent::zig_zag(self.call.seq, source, self.size)
    }

    /// Starts to send keys and values to the next rank of the ring, for the hop after this one, unless this is the
    /// last.
    fn start_hop(&self, hop: usize, kv: &Arc<Buffer>) -> Option<Hop> {
        let number = hop + 1;
        (number < self.size).then(|| {
            let span = scope::begin_on_host();
            Hop { number, arriving: self.send_to_next(Arc::clone(kv)), span }
        })
    }

    /// Waits for the keys and values of a hop.
    fn finish_hop(&self, Hop { number, arriving, span }: Hop) -> Buffer {
        let kv = self.call.wait_for_buffer(arriving);
        scope::record_numbered(("hop", self.call.site.shared_field()), span, ("hop", number));
        kv
    }

    /// Runs the attention of a hop inside of a span of the trace.
    fn trace_hop(&self, label: &'static str, hop: usize, attention: impl FnOnce()) {
        let span = scope::begin_span();
        attention();
        scope::record_numbered((label, self.call.site.shared_field()), span, ("hop", hop));
    }

    /// Starts to send data to the next rank of the ring, and to receive as much from the previous one.
    fn send_to_next(&self, data: Arc<Buffer>) -> PendingCall {
        let group = self.call.group;
        let (members, len) = (group.size(), data.len());
        let counts = |member: usize| {
            let mut counts = vec![0; members];
            counts[member % members] = len;
            counts
        };
        let send = counts(group.rank() + self.stride);
        let receive = counts(group.rank() + members - self.stride);
        let arriving = self.call.rank.alloc_scratch(data.dtype(), len);
        group.start_all_to_all(self.call.site, data, arriving, &send, &receive)
    }
}

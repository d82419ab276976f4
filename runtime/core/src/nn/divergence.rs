//! Kullback-Leibler divergence of the probabilities of a head from those of a teacher, chunk by chunk of tokens.

use std::ops::Range;

use crate::layout::AxisSet;
use crate::tensor::{
    AlwaysRecomputed, Arity, Count, Extent, InBackward, Operation, OperationBackward,
    OperationForward, ParamRef, Rank, Value, begin_function, set_backward_location,
};
use meshwright_backend::ops::middle_dim::{MapDimArgs, ReduceDimArgs};
use meshwright_backend::{
    Buffer, DType, DimFunction, DimReduction, Expr, MiddleDim, Node, UnaryFunction, View, ViewMut,
};
use meshwright_comm::{ReduceOp, Site};

use super::fused_loss::HeadParams;
use super::head_projection::{HeadProjection, ProjectionGradients, WantedGradients};
use super::{HeadOptions, LogitChunks};

/// Returns the divergence of each token.
#[track_caller]
pub(super) fn divergence(
    x: &Value,
    head: HeadParams<'_>,
    teacher_x: &Value,
    teacher: HeadParams<'_>,
    temperature: f32,
) -> Value {
    assert!(
        temperature.is_finite() && temperature > 0.0,
        "the temperature of a divergence is a finite number above 0, not {temperature}"
    );
    let rank = x.rank();
    rank.check_same(teacher.weight.rank());
    assert!(
        head.vocab() == teacher.vocab(),
        "`{}` has a vocabulary of {}, and its teacher `{}` one of {}",
        head.weight.site(),
        head.vocab().global,
        teacher.weight.site(),
        teacher.vocab().global
    );
    let (hidden, lead) = x.extents().split_last().expect("a stream has features");
    let wide = |options: HeadOptions| HeadOptions { f32_logits: true, ..options.without_loss() };
    let teacher_x = Value::constant(rank, teacher_x.extents().to_vec(), teacher_x.compute().data);
    let operation = DivergenceOperation {
        site: head.weight.site().clone(),
        vocab_axes: head.vocab_axes,
        vocab: head.vocab(),
        options: wide(head.options),
        teacher_options: wide(teacher.options),
        teacher: [Some(teacher.weight), teacher.bias].into_iter().flatten().cloned().collect(),
        hidden: hidden.local,
        tokens: lead.iter().map(|extent| extent.local).product(),
        temperature,
    };
    let outer = begin_function("LmHead::kl");
    let value = head.apply(operation, [x, &teacher_x], InBackward::Reads, lead.to_vec());
    set_backward_location(outer);
    value
}

struct DivergenceOperation {
    site: Site,
    /// The axes over which the vocabulary is split.
    vocab_axes: AxisSet,
    /// This rank's range of the vocabulary.
    vocab: Extent,
    options: HeadOptions,
    teacher_options: HeadOptions,
    /// The weight of the teacher, and its bias if it has one.
    teacher: Vec<ParamRef>,
    /// Elements of a row of the input.
    hidden: usize,
    tokens: usize,
    temperature: f32,
}

/// The softmax statistics of some rows: maxima, and sums of exponentials relative to them.
struct Softmax {
    max: Buffer,
    sum: Buffer,
}

impl DivergenceOperation {
    fn chunks(&self, rank: &Rank) -> LogitChunks {
        let degree = rank.degree_of(self.vocab_axes);
        LogitChunks::for_tokens(rank, self.tokens, self.vocab.global.div_ceil(degree))
    }

    fn dim(&self, rows: usize) -> MiddleDim {
        MiddleDim { outer: rows, len: self.vocab.local, inner: 1 }
    }

    fn all_reduce(&self, rank: &Rank, op: ReduceOp, numbers: &mut Buffer) {
        if rank.degree_of(self.vocab_axes) > 1 {
            rank.all_reduce(self.vocab_axes, &self.site, op, numbers.view_mut());
        }
    }

    /// Returns a reduction over the vocabulary of each of `rows` rows.
    fn reduce(
        &self,
        rank: &Rank,
        reduction: DimReduction,
        [x, second]: [View<'_>; 2],
        column: Option<View<'_>>,
    ) -> Buffer {
        let rows = x.len() / self.vocab.local;
        let mut y = rank.alloc_statistics(rows);
        let args = ReduceDimArgs { x, second, column, scale: 1.0, y: y.view_mut() };
        rank.backend().reduce_dim(self.dim(rows), reduction, args);
        let is_max = reduction == DimReduction::Largest;
        self.all_reduce(rank, if is_max { ReduceOp::Max } else { ReduceOp::Sum }, &mut y);
        y
    }

    /// Writes the logits of a chunk, divided by the temperature, and returns their statistics.
    fn logits(
        &self,
        head: &HeadProjection<'_>,
        rank: &Rank,
        input: View<'_>,
        mut logits: ViewMut<'_>,
    ) -> Softmax {
        head.write_logits(input, logits.reborrow());
        rank.backend().scale(logits.reborrow(), 1.0 / self.temperature);
        let z = logits.as_view();
        let max = self.reduce(rank, DimReduction::Largest, [z; 2], None);
        let sum = self.reduce(rank, DimReduction::ExpSum, [z; 2], Some(max.view()));
        Softmax { max, sum }
    }

    fn probabilities(&self, rank: &Rank, of: &Softmax, z: View<'_>, out: ViewMut<'_>) {
        let (c, d) = (of.max.view(), of.sum.view());
        let args = MapDimArgs { x: z, second: z, c, d, y: out };
        rank.backend().map_dim(self.dim(c.len()), DimFunction::Softmax, args);
    }

    /// Calls `body` with the teacher's projection.
    fn with_teacher<R>(
        &self,
        rank: &Rank,
        teacher_hidden: usize,
        body: impl FnOnce(&HeadProjection<'_>) -> R,
    ) -> R {
        let values: Vec<_> = self.teacher.iter().map(|param| param.values()).collect();
        let params: Vec<_> = values.iter().map(|values| values.view()).collect();
        let options = self.teacher_options;
        body(&HeadProjection::new(rank, &params, teacher_hidden, self.vocab, options))
    }
}

/// Buffers for the logits of a chunk, each in f32.
struct ChunkBuffers {
    /// Logits of this head, later their gradients.
    student: Buffer,
    /// Logits of the teacher.
    teacher: Buffer,
    /// Probabilities of the teacher, and of this head in backward.
    probabilities: [Buffer; 2],
}

impl ChunkBuffers {
    fn new(rank: &Rank, len: usize) -> ChunkBuffers {
        let alloc = || rank.alloc_scratch(DType::F32, len);
        ChunkBuffers { student: alloc(), teacher: alloc(), probabilities: [alloc(), alloc()] }
    }
}

fn part(buffer: &mut Buffer, len: usize) -> ViewMut<'_> {
    buffer.view_mut().into_slice(0..len)
}

/// Returns the rows of a chunk.
fn rows_of(x: &Buffer, chunk: Range<usize>, hidden: usize) -> View<'_> {
    x.view().slice(chunk.start * hidden..chunk.end * hidden)
}

impl<P: Arity> Operation<Count<2>, P> for DivergenceOperation {
    type Saved = AlwaysRecomputed<()>;

    fn forward(&self, forward: OperationForward<'_, Count<2>, P>) -> (Buffer, ()) {
        let OperationForward { rank, inputs: [x, teacher_x], params, .. } = forward;
        let [x, teacher_x] = [x, teacher_x].map(|x| x.compute().data);
        let chunks = self.chunks(rank);
        let teacher_hidden = teacher_x.len() / self.tokens.max(1);
        let head =
            HeadProjection::new(rank, params.as_ref(), self.hidden, self.vocab, self.options);
        let mut wide = rank.alloc_scratch(DType::F32, self.tokens);
        let mut buffers = ChunkBuffers::new(rank, chunks.longest() * self.vocab.local);
        self.with_teacher(rank, teacher_hidden, |teacher| {
            for chunk in chunks.ranges() {
                let len = chunk.len() * self.vocab.local;
                let ChunkBuffers { student, teacher: theirs, probabilities: [q, _] } = &mut buffers;
                let rows = rows_of(&x, chunk.clone(), self.hidden);
                let p_of = self.logits(&head, rank, rows, part(student, len));
                let rows = rows_of(&teacher_x, chunk.clone(), teacher_hidden);
                let q_of = self.logits(teacher, rank, rows, part(theirs, len));
                self.probabilities(rank, &q_of, theirs.view().slice(0..len), part(q, len));
                let mean = |z: &Buffer| {
                    let operands = [q.view().slice(0..len), z.view().slice(0..len)];
                    self.reduce(rank, DimReduction::DotSum, operands, None)
                };
                let means = [mean(theirs), mean(student)];
                // sum(q z_teacher) - sum(q z) + lse - lse_teacher
                let nodes = vec![
                    Node::Leaf(0),
                    Node::Leaf(1),
                    Node::Leaf(2),
                    Node::Leaf(3),
                    Node::Leaf(4),
                    Node::Leaf(5),
                    Node::Apply(UnaryFunction::Log, 3),
                    Node::Apply(UnaryFunction::Log, 5),
                    Node::Sub(0, 4),
                    Node::Sub(8, 7),
                    Node::Sub(1, 2),
                    Node::Sub(10, 6),
                    Node::Sub(9, 11),
                ];
                let leaves = [&means[0], &means[1], &p_of.max, &p_of.sum, &q_of.max, &q_of.sum]
                    .map(Buffer::view);
                let out = wide.view_mut().into_slice(chunk);
                rank.backend().map(&Expr { nodes }, &leaves, out);
            }
        });
        let mut out = rank.alloc_activation(self.tokens);
        rank.backend().cast(wide.view(), out.view_mut());
        (out, ())
    }

    fn backward(self, backward: OperationBackward<'_, '_, Count<2>, P>, _: AlwaysRecomputed<()>) {
        let OperationBackward { gradients, inputs, params: uses, gradient: dy, .. } = backward;
        let [mut x, mut teacher_x] = inputs;
        let (rank, uses) = (gradients.rank, uses.as_ref());
        let [input, teacher_input] = [&mut x, &mut teacher_x].map(|x| x.take_saved(rank));
        let mut scale = rank.alloc_scratch(DType::F32, dy.len());
        rank.backend().cast(dy.view(), scale.view_mut());
        rank.backend().scale(scale.view_mut(), 1.0 / self.temperature);

        let values: Vec<_> = uses.iter().map(|param| param.param().values()).collect();
        let params: Vec<_> = values.iter().map(|values| values.view()).collect();
        let head = HeadProjection::new(rank, &params, self.hidden, self.vocab, self.options);
        let (chunks, teacher_hidden) =
            (self.chunks(rank), teacher_input.len() / self.tokens.max(1));
        let len = chunks.longest() * self.vocab.local;
        let mut buffers = ChunkBuffers::new(rank, len);
        let is_narrow = rank.compute_dtype() != DType::F32;
        let mut rounded = is_narrow.then(|| rank.alloc_scratch(rank.compute_dtype(), len));
        let mut sums = ProjectionGradients::new(&head, self.tokens, WantedGradients::of(&x, uses));
        self.with_teacher(rank, teacher_hidden, |teacher| {
            for chunk in chunks.ranges() {
                let rows = [
                    rows_of(&input, chunk.clone(), self.hidden),
                    rows_of(&teacher_input, chunk.clone(), teacher_hidden),
                ];
                let scale = scale.view().slice(chunk.clone());
                let dlogits =
                    self.chunk_gradient(rank, [&head, teacher], rows, scale, &mut buffers);
                let len = dlogits.len();
                let rounded = rounded.as_mut().map(|rounded| part(rounded, len));
                sums.add_logits(&head, chunk.start, rows[0], dlogits, rounded);
            }
        });
        sums.clear_without_chunks(chunks.count());
        drop(params);
        drop(values);
        sums.finish(gradients, uses, &x);
    }
}

impl DivergenceOperation {
    /// Returns the gradient of the logits of a chunk: `(p - q) * scale`, times the slope of the soft cap.
    fn chunk_gradient<'b>(
        &self,
        rank: &Rank,
        [head, teacher]: [&HeadProjection<'_>; 2],
        [rows, teacher_rows]: [View<'_>; 2],
        scale: View<'_>,
        buffers: &'b mut ChunkBuffers,
    ) -> ViewMut<'b> {
        let len = scale.len() * self.vocab.local;
        let ChunkBuffers { student, teacher: theirs, probabilities: [q, p] } = buffers;
        let p_of = self.logits(head, rank, rows, part(student, len));
        let q_of = self.logits(teacher, rank, teacher_rows, part(theirs, len));
        self.probabilities(rank, &q_of, theirs.view().slice(0..len), part(q, len));
        self.probabilities(rank, &p_of, student.view().slice(0..len), part(p, len));
        // The logits are divided by the temperature, so the cap is too.
        let difference = vec![Node::Leaf(0), Node::Leaf(1), Node::Sub(0, 1)];
        let nodes = match self.options.soft_cap {
            None => difference,
            Some(cap) => {
                let slope = [
                    Node::Leaf(2),
                    Node::Scale(3, self.temperature / cap),
                    Node::Mul(4, 4),
                    Node::Scale(5, -1.0),
                    Node::Offset(6, 1.0),
                    Node::Mul(2, 7),
                ];
                difference.into_iter().chain(slope).collect()
            }
        };
        let leaves = [p.view(), q.view(), student.view()].map(|leaf| leaf.slice(0..len));
        let leaves = &leaves[..if self.options.soft_cap.is_some() { 3 } else { 2 }];
        rank.backend().map(&Expr { nodes }, leaves, part(theirs, len));
        let mut zeros = rank.alloc_scratch(DType::F32, scale.len());
        zeros.view_mut().clear();
        let z = theirs.view().slice(0..len);
        let args = MapDimArgs { x: z, second: z, c: zeros.view(), d: scale, y: part(q, len) };
        rank.backend().map_dim(self.dim(scale.len()), DimFunction::Centered, args);
        part(q, len)
    }
}

//! Grouped GEMM: the matmuls of the rows of each expert and its weight.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use crate::layout::AxisSet;
use crate::tensor::{
    Count, InBackward, Operands, Operation, OperationBackward, OperationForward, OperationInput,
    OperationParam, ParamRef, Rank, RoutedRows, Value, alloc_like, apply,
};
use meshwright_backend::{Buffer, Gemm};
use meshwright_mesh::__internal::local_len;
use meshwright_mesh::Extent;

/// Computes the grouped GEMM of the rows of each expert of this rank and its weight.
#[track_caller]
pub(super) fn grouped_matmul(x: &Value, weight: &ParamRef, gradient_axes: AxisSet) -> Value {
    let extents = weight.local_extents();
    let (experts, read, written) = (extents[0], &extents[1..2], &extents[2..]);
    let rows = routed_rows(x, weight, experts, (read, &x.extents()[1..]));
    let operation = GroupedMatmul { rows, read: local_len(read), written: local_len(written) };
    // The gradient of the weight alone reads the rows.
    let x_in_backward = if weight.is_frozen() { InBackward::Ignores } else { InBackward::Reads };
    let operands = Operands::<Count<1>, Count<1>> {
        rank: x.rank(),
        path: weight.path(),
        inputs: [OperationInput::new(x, x_in_backward)],
        params: [OperationParam { param: weight, gradient_axes, in_backward: InBackward::Reads }],
        extents: [&x.extents()[..1], written].concat(),
    };
    apply(operation, operands)
}

/// Returns the rows `x`, which were routed to the experts of `param`, and checks that they have the dims that it reads.
#[track_caller]
pub(super) fn routed_rows(
    x: &Value,
    param: &ParamRef,
    experts: Extent,
    (read, found): (&[Extent], &[Extent]),
) -> Rc<RoutedRows> {
    let routing = x.extents()[0].routing();
    let routed = x.rank().routed_rows().filter(|routed| routed.routing == routing);
    let Some(routed) = routed else { unreachable!("rows follow from a routing") };
    assert!(
        found == read && routed.of_expert.len() == experts.local,
        "`{}` has {} experts on this rank, which read {} elements, but the rows were routed to {} experts and have {}: \
         a router and its experts have the same dims",
        param.path(),
        experts.local,
        local_len(read),
        routed.of_expert.len(),
        local_len(found)
    );
    Rc::clone(routed)
}

/// Iterates over the experts that have rows, with their rows.
pub(super) fn groups(rows: &RoutedRows) -> impl Iterator<Item = (usize, Range<usize>)> {
    let mut end = 0;
    let groups = rows.of_expert.iter().enumerate().map(move |(expert, count)| {
        end += count;
        (expert, end - count..end)
    });
    groups.filter(|(_, rows)| !rows.is_empty())
}

/// A grouped GEMM with one matmul for each expert.
struct GroupedMatmul {
    rows: Rc<RoutedRows>,
    read: usize,
    written: usize,
}

impl GroupedMatmul {
    /// Returns the elements of an expert's weight.
    fn weight_of(&self, expert: usize) -> Range<usize> {
        let len = self.read * self.written;
        expert * len..(expert + 1) * len
    }
}

/// Returns the elements of rows of `cols` elements.
fn elements(rows: &Range<usize>, cols: usize) -> Range<usize> {
    rows.start * cols..rows.end * cols
}

impl Operation<Count<1>, Count<1>> for GroupedMatmul {
    type Saved = [Arc<Buffer>; 0];

    fn forward(&self, forward: OperationForward<'_, Count<1>, Count<1>>) -> (Buffer, [Buffer; 0]) {
        let OperationForward { rank, inputs: [x], params: [weight], .. } = forward;
        let GroupedMatmul { read, written, .. } = *self;
        let x = x.compute().data;
        let mut out = rank.alloc_activation(self.rows.count() * written);
        for (expert, rows) in groups(&self.rows) {
            let gemm = Gemm {
                m: rows.len(),
                n: written,
                k: read,
                trans_a: false,
                trans_b: false,
                accumulate: false,
            };
            rank.backend().grouped_gemm(
                &gemm,
                x.view().slice(elements(&rows, read)),
                weight.slice(self.weight_of(expert)),
                out.view_mut().slice(elements(&rows, written)),
            );
        }
        (out, [])
    }

    fn backward(
        self,
        backward: OperationBackward<'_, '_, Count<1>, Count<1>>,
        _: [Arc<Buffer>; 0],
    ) {
        let OperationBackward {
            gradients, inputs: [mut x], params: [weight], gradient: dy, ..
        } = backward;
        let (rank, read) = (gradients.rank, self.read);
        if x.requires_grad() {
            let mut dx = alloc_like(&dy, dy.len() / self.written * read);
            self.input_gradient(rank, &dy, weight.param(), &mut dx);
            x.add_gradient(gradients, Arc::new(dx));
        }
        let Some(x) = x.take_data(rank) else { return };
        gradients.weight_gradient(move |gradients| {
            weight.finish_use(gradients, |mut dw, accumulate| {
                if !accumulate {
                    // Experts without rows have gradients too.
                    gradients.rank.backend().fill(dw.reborrow(), 0.0);
                }
                for (expert, rows) in groups(&self.rows) {
                    let gemm = Gemm {
                        m: read,
                        n: self.written,
                        k: rows.len(),
                        trans_a: true,
                        trans_b: false,
                        accumulate: true,
                    };
                    gradients.rank.backend().grouped_gemm(
                        &gemm,
                        x.view().slice(elements(&rows, read)),
                        dy.view().slice(elements(&rows, self.written)),
                        dw.slice(self.weight_of(expert)),
                    );
                }
            });
        });
    }
}

impl GroupedMatmul {
    /// Computes the gradient of the input: the grouped GEMM of the result's gradient and the transposed weights.
    fn input_gradient(&self, rank: &Rank, dy: &Buffer, weight: &ParamRef, dx: &mut Buffer) {
        let values = weight.values();
        for (expert, rows) in groups(&self.rows) {
            let gemm = Gemm {
                m: rows.len(),
                n: self.read,
                k: self.written,
                trans_a: false,
                trans_b: true,
                accumulate: false,
            };
            rank.backend().grouped_gemm(
                &gemm,
                dy.view().slice(elements(&rows, self.written)),
                values.view().slice(self.weight_of(expert)),
                dx.view_mut().slice(elements(&rows, self.read)),
            );
        }
    }
}

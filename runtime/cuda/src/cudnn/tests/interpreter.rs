//! An interpreter of operation graphs. Everything is f32, whatever the element types.

use std::collections::HashMap;

use crate::cudnn::{
    GraphOperand, GraphOperation, GraphScalar, GraphTensor, OperationGraph, Pointwise, Reduction,
    TensorDims, TensorId, TensorStorage,
};

/// Values of tensors by index, elements in the order of the dims independent of strides.
struct Values<'a> {
    graph: &'a OperationGraph,
    of: Vec<Vec<f32>>,
}

/// Runs a graph on operands in their memory layout; computed operands are overwritten.
pub fn run(
    graph: &OperationGraph,
    memory: &mut HashMap<GraphOperand, Vec<f32>>,
    scalar: impl Fn(GraphScalar) -> f32,
) {
    let read = |tensor: &GraphTensor| match tensor.home {
        TensorStorage::Device(operand) => {
            indices(tensor.sizes).map(|index| memory[&operand][offset(tensor, index)]).collect()
        }
        TensorStorage::Virtual => vec![f32::NAN; indices(tensor.sizes).count()],
        TensorStorage::Value(of) => vec![scalar(of)],
    };
    let of = graph.tensors.iter().map(read).collect();
    let mut values = Values { graph, of };
    for operation in &graph.operations {
        values.execute(operation);
    }
    for (id, operand) in graph.operands() {
        let tensor = &graph.tensors[id.0];
        for (index, value) in indices(tensor.sizes).zip(&values.of[id.0]) {
            memory.get_mut(&operand).expect("every operand has memory")[offset(tensor, index)] =
                *value;
        }
    }
}

impl Values<'_> {
    fn execute(&mut self, operation: &GraphOperation) {
        let (result, values): (TensorId, Vec<f32>) = match *operation {
            GraphOperation::MatMul { a, b, c } => {
                let ([.., intermediate], [_, heads, ..]) = (self.sizes(a), self.sizes(c));
                let product = |[n, h, i, j]: TensorDims| {
                    let term =
                        |k| self.at(a, [n, h, i, k], heads) * self.at(b, [n, h, k, j], heads);
                    (0..intermediate).map(term).sum()
                };
                (c, indices(self.sizes(c)).map(product).collect())
            }
            GraphOperation::Pointwise { mode, x, b, t, y } => {
                let [_, heads, ..] = self.sizes(y);
                let value = |index: TensorDims| {
                    let of = |id: Option<TensorId>| self.at(id.expect("an operand"), index, heads);
                    let x = self.at(x, index, heads);
                    match mode {
                        Pointwise::Add | Pointwise::AddIndex => x + of(b),
                        Pointwise::Sub => x - of(b),
                        Pointwise::Mul => x * of(b),
                        Pointwise::Div => x / of(b),
                        Pointwise::Exp => x.exp(),
                        Pointwise::Log => x.ln(),
                        Pointwise::Identity => x,
                        Pointwise::Index(dim) => index[dim] as f32,
                        Pointwise::AtLeast => f32::from(x >= of(b)),
                        Pointwise::Above => f32::from(x > of(b)),
                        Pointwise::Select => {
                            if of(t) == 0.0 {
                                of(b)
                            } else {
                                x
                            }
                        }
                    }
                };
                (y, indices(self.sizes(y)).map(value).collect())
            }
            GraphOperation::Reduce { by, x, y } => {
                let (from, to) = (self.sizes(x), self.sizes(y));
                let start = if by == Reduction::Sum { 0.0 } else { f32::NEG_INFINITY };
                let mut values = vec![start; indices(to).count()];
                for index in indices(from) {
                    let group = std::array::from_fn(|dim| index[dim] * to[dim] / from[dim]);
                    let value = &mut values[position(to, group)];
                    let x = self.at(x, index, from[1]);
                    *value = match by {
                        Reduction::Sum => *value + x,
                        Reduction::Max => value.max(x),
                    };
                }
                (y, values)
            }
            GraphOperation::Transpose { x, y } => {
                let [_, heads, ..] = self.sizes(y);
                let value = |[n, h, i, j]: TensorDims| self.at(x, [n, h, j, i], heads);
                (y, indices(self.sizes(y)).map(value).collect())
            }
        };
        self.of[result.0] = values;
    }

    fn sizes(&self, id: TensorId) -> TensorDims {
        self.graph.tensors[id.0].sizes
    }

    /// Returns the element at an index of a tensor with `heads` heads: sizes of 1 are broadcast, and a head is repeated
    /// if the tensor has fewer.
    fn at(&self, id: TensorId, [n, h, i, j]: TensorDims, heads: i64) -> f32 {
        let sizes = self.sizes(id);
        let fit = |index: i64, size: i64| if size == 1 { 0 } else { index };
        let index = [fit(n, sizes[0]), h * sizes[1] / heads, fit(i, sizes[2]), fit(j, sizes[3])];
        self.of[id.0][position(sizes, index)]
    }
}

fn indices([n, h, i, j]: TensorDims) -> impl Iterator<Item = TensorDims> {
    (0..n * h * i * j).map(move |at| [at / (h * i * j), at / (i * j) % h, at / j % i, at % j])
}

fn position(sizes: TensorDims, [n, h, i, j]: TensorDims) -> usize {
    (((n * sizes[1] + h) * sizes[2] + i) * sizes[3] + j) as usize
}

fn offset(tensor: &GraphTensor, index: TensorDims) -> usize {
    index.iter().zip(tensor.strides).map(|(index, stride)| index * stride).sum::<i64>() as usize
}

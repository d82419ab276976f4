//! Graphs of operations as plain data, before anything is asked of the library.

use super::sizes::Sizes;

/// Type of the elements of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// Brain float, what attention reads and writes.
    Bf16,
    /// What sums and intermediates are.
    F32,
    /// Positions.
    I32,
    /// Results of comparisons.
    Bool,
}

/// A tensor in device memory, whose address is given when the graph is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operand {
    /// Queries.
    Q,
    /// Keys.
    K,
    /// Values.
    V,
    /// Output.
    Out,
    /// Log-sum-exp of the scores of each row.
    Lse,
    /// Gradient of the output.
    DOut,
    /// Gradient of the queries.
    DQ,
    /// Gradient of the keys.
    DK,
    /// Gradient of the values.
    DV,
    /// Scratch: the sum of `dout * out` of each row.
    RowSum,
    /// Scratch: where gradients of the queries are added up in f32.
    DQSum,
}

/// A number that is given when the graph is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// Factor on the scores.
    Scale,
    /// Score of what a position does not read.
    Masked,
    /// What would be the inverse scale of a dropout: 1. The library knows attention by its pattern, which has it.
    One,
}

/// Where a tensor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// In device memory.
    Device(Operand),
    /// Nowhere: an intermediate that is never stored.
    Virtual,
    /// In the call.
    Value(Scalar),
}

/// Sizes or strides, both in elements: batch, head, row, column.
pub type Four = [i64; 4];

/// A tensor of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Type of its elements.
    pub element: Element,
    /// Where it is.
    pub home: Home,
    /// Its sizes.
    pub sizes: Four,
    /// Distances between neighbours along each dim.
    pub strides: Four,
}

/// A tensor by its position in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorId(pub usize);

impl TensorId {
    /// What the library calls the tensor. Zero means no tensor there.
    pub fn uid(self) -> i64 {
        self.0 as i64 + 1
    }
}

/// What is done with each element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pointwise {
    /// `x + b`.
    Add,
    /// `x - b`.
    Sub,
    /// `x * b`.
    Mul,
    /// `x / b`.
    Div,
    /// `e^x`.
    Exp,
    /// `ln x`.
    Log,
    /// `x`, in the type of the result.
    Identity,
    /// The index of the element along a dim.
    Index(usize),
    /// `x >= b`.
    AtLeast,
    /// `x` where `t`, else `b`.
    Select,
}

/// How rows are reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// The sum.
    Sum,
    /// The maximum.
    Max,
}

/// One operation; sizes of 1 are broadcast.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// `c = a * b` of the last two dims. A head of `b` serves as many neighbouring heads of `a` as there are more.
    MatMul {
        /// Left factor.
        a: TensorId,
        /// Right factor.
        b: TensorId,
        /// Result.
        c: TensorId,
    },
    /// `y` from the elements of up to three tensors.
    Pointwise {
        /// What is done.
        mode: Pointwise,
        /// First operand.
        x: TensorId,
        /// Second operand.
        b: Option<TensorId>,
        /// Condition.
        t: Option<TensorId>,
        /// Result.
        y: TensorId,
    },
    /// `y` from groups of elements of `x`, along the dims in which `y` is smaller.
    Reduce {
        /// How.
        by: Reduction,
        /// Operand.
        x: TensorId,
        /// Result.
        y: TensorId,
    },
    /// `y` is `x` with the last two dims exchanged.
    Transpose {
        /// Operand.
        x: TensorId,
        /// Result.
        y: TensorId,
    },
}

/// Tensors and operations on them, each after those whose results it reads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Graph {
    /// The tensors, in the order of their uids.
    pub tensors: Vec<Tensor>,
    /// The operations.
    pub operations: Vec<Operation>,
}

impl Graph {
    /// The tensors in device memory.
    pub fn operands(&self) -> impl Iterator<Item = (TensorId, Operand)> {
        self.tensors.iter().enumerate().filter_map(|(index, tensor)| match tensor.home {
            Home::Device(operand) => Some((TensorId(index), operand)),
            _ => None,
        })
    }

    /// The numbers that are given when it is executed.
    pub fn scalars(&self) -> impl Iterator<Item = (TensorId, Scalar)> {
        self.tensors.iter().enumerate().filter_map(|(index, tensor)| match tensor.home {
            Home::Value(scalar) => Some((TensorId(index), scalar)),
            _ => None,
        })
    }

    /// Whether an operand is part of it.
    pub fn has(&self, operand: Operand) -> bool {
        self.operands().any(|(_, other)| other == operand)
    }
}

/// A graph that grows: each function adds an operation and gives its result.
pub(super) struct Builder {
    graph: Graph,
    sizes: Sizes,
}

impl Builder {
    pub fn new(sizes: Sizes) -> Builder {
        Builder { graph: Graph::default(), sizes }
    }

    pub fn finish(self) -> Graph {
        self.graph
    }

    fn add(&mut self, element: Element, home: Home, (sizes, strides): (Four, Four)) -> TensorId {
        self.graph.tensors.push(Tensor { element, home, sizes, strides });
        TensorId(self.graph.tensors.len() - 1)
    }

    /// A tensor in device memory.
    pub fn operand(&mut self, operand: Operand, element: Element, form: (Four, Four)) -> TensorId {
        self.add(element, Home::Device(operand), form)
    }

    /// A number given later.
    pub fn scalar(&mut self, scalar: Scalar) -> TensorId {
        self.add(Element::F32, Home::Value(scalar), ([1; 4], [1; 4]))
    }

    /// An intermediate.
    pub fn inner(&mut self, element: Element, form: (Four, Four)) -> TensorId {
        self.add(element, Home::Virtual, form)
    }

    /// An intermediate with one f32 for each score.
    pub fn scores(&mut self) -> TensorId {
        self.inner(Element::F32, self.sizes.scores())
    }

    pub fn matmul(&mut self, a: TensorId, b: TensorId, c: TensorId) -> TensorId {
        self.graph.operations.push(Operation::MatMul { a, b, c });
        c
    }

    pub fn reduce(&mut self, by: Reduction, x: TensorId, y: TensorId) -> TensorId {
        self.graph.operations.push(Operation::Reduce { by, x, y });
        y
    }

    pub fn transpose(&mut self, x: TensorId, y: TensorId) -> TensorId {
        self.graph.operations.push(Operation::Transpose { x, y });
        y
    }

    pub fn unary(&mut self, mode: Pointwise, x: TensorId, y: TensorId) -> TensorId {
        self.graph.operations.push(Operation::Pointwise { mode, x, b: None, t: None, y });
        y
    }

    pub fn binary(&mut self, mode: Pointwise, x: TensorId, b: TensorId, y: TensorId) -> TensorId {
        self.graph.operations.push(Operation::Pointwise { mode, x, b: Some(b), t: None, y });
        y
    }

    /// A binary operation whose result has one f32 for each score.
    pub fn of_scores(&mut self, mode: Pointwise, x: TensorId, b: TensorId) -> TensorId {
        let y = self.scores();
        self.binary(mode, x, b, y)
    }

    /// The scores, and `masked` where a column comes after its row; all scores if attention is not causal.
    pub fn mask(&mut self, scores: TensorId, masked: Option<TensorId>) -> TensorId {
        let Some(masked) = masked else { return scores };
        let form = self.sizes.scores();
        let (row, col) = (self.inner(Element::I32, form), self.inner(Element::I32, form));
        let (reads, out) = (self.inner(Element::Bool, form), self.scores());
        self.unary(Pointwise::Index(2), scores, row);
        self.unary(Pointwise::Index(3), scores, col);
        self.binary(Pointwise::AtLeast, row, col, reads);
        self.graph.operations.push(Operation::Pointwise {
            mode: Pointwise::Select,
            x: scores,
            b: Some(masked),
            t: Some(reads),
            y: out,
        });
        out
    }
}

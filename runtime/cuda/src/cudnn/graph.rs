//! Operation graphs as plain data, independent of the library.

/// Element type of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementType {
    /// Bfloat16, the type of attention's inputs and outputs.
    Bf16,
    /// Type of sums and intermediates.
    F32,
    /// Type of positions.
    I32,
    /// Type of comparisons.
    Bool,
}

/// A tensor in device memory, whose address is given at execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GraphOperand {
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
    /// Scratch: `sum(dout * out)` per row.
    RowSum,
    /// Scratch: f32 accumulator of the query gradients.
    DQSum,
}

/// A scalar that is given at execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GraphScalar {
    /// Scale of the scores.
    Scale,
    /// Score of masked positions.
    Masked,
    /// Visible keys after the one with the index of a query.
    RightBound,
    /// Distance from which on keys before the one with the index of a query are masked. The library takes it as f32.
    LeftBound,
    /// The inverse scale of a dropout without dropout, 1: the attention pattern that the library recognizes contains
    /// it.
    One,
}

impl GraphScalar {
    /// Returns the element type.
    pub fn element(self) -> ElementType {
        match self {
            GraphScalar::RightBound => ElementType::I32,
            _ => ElementType::F32,
        }
    }
}

/// Storage of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorStorage {
    /// Device memory.
    Device(GraphOperand),
    /// None: an intermediate that is never stored.
    Virtual,
    /// Passed by value at execution.
    Value(GraphScalar),
}

/// Sizes or strides in elements: batch, head, row, column.
pub type TensorDims = [i64; 4];

/// A tensor of an operation graph.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphTensor {
    /// Element type.
    pub element: ElementType,
    /// Storage of the tensor.
    pub home: TensorStorage,
    /// Sizes.
    pub sizes: TensorDims,
    /// Strides.
    pub strides: TensorDims,
}

/// Index of a tensor in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorId(pub usize);

impl TensorId {
    /// Returns the unique id for the library, which reserves 0.
    pub fn uid(self) -> i64 {
        self.0 as i64 + 1
    }
}

/// Mode of a pointwise operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pointwise {
    /// `x + b`.
    Add,
    /// `x + b` of integers.
    AddIndex,
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
    /// `x > b`.
    Above,
    /// `x` if `t`, else `b`.
    Select,
}

/// Reduction operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// The sum.
    Sum,
    /// The maximum.
    Max,
}

/// An operation; sizes of 1 are broadcast.
#[derive(Debug, Clone, PartialEq)]
pub enum GraphOperation {
    /// `c = a * b` over the last two dims. A head of `b` is shared by consecutive heads of `a` if `a` has more heads.
    MatMul {
        /// Left input.
        a: TensorId,
        /// Right input.
        b: TensorId,
        /// Result.
        c: TensorId,
    },
    /// `y` from the elements of up to three tensors.
    Pointwise {
        /// Mode.
        mode: Pointwise,
        /// First input.
        x: TensorId,
        /// Second input.
        b: Option<TensorId>,
        /// Condition.
        t: Option<TensorId>,
        /// Result.
        y: TensorId,
    },
    /// Reduces `x` to `y` along the dims that are smaller in `y`.
    Reduce {
        /// Operator.
        by: Reduction,
        /// Input.
        x: TensorId,
        /// Result.
        y: TensorId,
    },
    /// Exchanges the last two dims of `x`.
    Transpose {
        /// Input.
        x: TensorId,
        /// Result.
        y: TensorId,
    },
}

/// Tensors and operations on them, each after those whose results it reads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OperationGraph {
    /// Tensors, in the order of their unique ids.
    pub tensors: Vec<GraphTensor>,
    /// The operations.
    pub operations: Vec<GraphOperation>,
}

impl OperationGraph {
    /// The tensors in device memory.
    pub fn operands(&self) -> impl Iterator<Item = (TensorId, GraphOperand)> {
        self.tensors.iter().enumerate().filter_map(|(index, tensor)| match tensor.home {
            TensorStorage::Device(operand) => Some((TensorId(index), operand)),
            _ => None,
        })
    }

    /// Returns the scalars that are passed at execution.
    pub fn scalars(&self) -> impl Iterator<Item = (TensorId, GraphScalar)> {
        self.tensors.iter().enumerate().filter_map(|(index, tensor)| match tensor.home {
            TensorStorage::Value(scalar) => Some((TensorId(index), scalar)),
            _ => None,
        })
    }

    /// Returns true if the graph has this operand.
    pub fn has(&self, operand: GraphOperand) -> bool {
        self.operands().any(|(_, other)| other == operand)
    }
}

/// A graph that grows: each function adds an operation and returns its result.
pub(super) struct GraphBuilder {
    graph: OperationGraph,
    /// Sizes and strides of the scores.
    scores: (TensorDims, TensorDims),
}

impl GraphBuilder {
    /// Creates an empty graph of attention whose scores have these sizes and strides.
    pub fn new(scores: (TensorDims, TensorDims)) -> GraphBuilder {
        GraphBuilder { graph: OperationGraph::default(), scores }
    }

    pub fn finish(self) -> OperationGraph {
        self.graph
    }

    fn add(
        &mut self,
        element: ElementType,
        home: TensorStorage,
        (sizes, strides): (TensorDims, TensorDims),
    ) -> TensorId {
        self.graph.tensors.push(GraphTensor { element, home, sizes, strides });
        TensorId(self.graph.tensors.len() - 1)
    }

    /// A tensor in device memory.
    pub fn operand(
        &mut self,
        operand: GraphOperand,
        element: ElementType,
        form: (TensorDims, TensorDims),
    ) -> TensorId {
        self.add(element, TensorStorage::Device(operand), form)
    }

    /// Adds a scalar that is passed at execution.
    pub fn scalar(&mut self, scalar: GraphScalar) -> TensorId {
        self.add(scalar.element(), TensorStorage::Value(scalar), ([1; 4], [1; 4]))
    }

    /// An intermediate.
    pub fn intermediate(
        &mut self,
        element: ElementType,
        form: (TensorDims, TensorDims),
    ) -> TensorId {
        self.add(element, TensorStorage::Virtual, form)
    }

    /// An intermediate with one f32 for each score.
    pub fn scores(&mut self) -> TensorId {
        self.intermediate(ElementType::F32, self.scores)
    }

    pub fn matmul(&mut self, a: TensorId, b: TensorId, c: TensorId) -> TensorId {
        self.graph.operations.push(GraphOperation::MatMul { a, b, c });
        c
    }

    pub fn reduce(&mut self, by: Reduction, x: TensorId, y: TensorId) -> TensorId {
        self.graph.operations.push(GraphOperation::Reduce { by, x, y });
        y
    }

    pub fn transpose(&mut self, x: TensorId, y: TensorId) -> TensorId {
        self.graph.operations.push(GraphOperation::Transpose { x, y });
        y
    }

    pub fn unary(&mut self, mode: Pointwise, x: TensorId, y: TensorId) -> TensorId {
        self.graph.operations.push(GraphOperation::Pointwise { mode, x, b: None, t: None, y });
        y
    }

    pub fn binary(&mut self, mode: Pointwise, x: TensorId, b: TensorId, y: TensorId) -> TensorId {
        self.graph.operations.push(GraphOperation::Pointwise { mode, x, b: Some(b), t: None, y });
        y
    }

    /// Adds a binary operation whose result has one f32 for each score.
    pub fn score_op(&mut self, mode: Pointwise, x: TensorId, b: TensorId) -> TensorId {
        let y = self.scores();
        self.binary(mode, x, b, y)
    }

    /// The index of each score along a dim.
    pub fn index(&mut self, scores: TensorId, dim: usize) -> TensorId {
        let y = self.intermediate(ElementType::I32, self.scores);
        self.unary(Pointwise::Index(dim), scores, y)
    }

    /// Adds an integer to an index.
    pub fn add_to_index(&mut self, x: TensorId, b: TensorId) -> TensorId {
        let y = self.intermediate(ElementType::I32, self.scores);
        self.binary(Pointwise::AddIndex, x, b, y)
    }

    /// A comparison for each score.
    pub fn compare(&mut self, mode: Pointwise, x: TensorId, b: TensorId) -> TensorId {
        let y = self.intermediate(ElementType::Bool, self.scores);
        self.binary(mode, x, b, y)
    }

    /// Adds a selection: for each score `x` if `t`, else `b`.
    pub fn select(&mut self, x: TensorId, b: TensorId, t: TensorId) -> TensorId {
        let (y, mode) = (self.scores(), Pointwise::Select);
        self.graph.operations.push(GraphOperation::Pointwise {
            mode,
            x,
            b: Some(b),
            t: Some(t),
            y,
        });
        y
    }
}

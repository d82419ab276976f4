//! Lowering of operation graphs to the library's descriptors.

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t::*, cudnnBackendDescriptorType_t::*, cudnnDataType_t,
    cudnnPointwiseMode_t, cudnnReduceTensorOp_t,
};

use crate::DriverError;

use super::descriptor::{Descriptor, Setter};
use super::graph::{
    ElementType, GraphOperation, GraphTensor, OperationGraph, Pointwise, Reduction, TensorId,
    TensorStorage,
};
use super::target::TargetDevice;

/// Required alignment of operand addresses, in bytes.
pub const OPERAND_ALIGNMENT: u64 = 16;

/// The descriptor of a finalized graph, with the descriptors that it refers to.
pub(super) struct LoweredGraph {
    graph: Descriptor,
    _operations: Vec<Descriptor>,
    _details: Vec<Descriptor>,
    _tensors: Vec<Descriptor>,
}

impl LoweredGraph {
    /// Creates the descriptors of a graph.
    pub fn new(graph: &OperationGraph, device: &TargetDevice) -> Result<LoweredGraph, DriverError> {
        let tensors = graph
            .tensors
            .iter()
            .enumerate()
            .map(|(index, t)| tensor(TensorId(index), t))
            .collect::<Result<Vec<_>, _>>()?;
        let mut details = Vec::new();
        let operations = graph
            .operations
            .iter()
            .map(|o| operation(o, &tensors, &mut details))
            .collect::<Result<Vec<_>, _>>()?;

        let setter = Setter::new(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
        if let TargetDevice::Present(handle) = device {
            setter.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, &[handle.raw()])?;
        }
        let all: Vec<_> = operations.iter().collect();
        setter.set_descriptors(CUDNN_ATTR_OPERATIONGRAPH_OPS, &all)?;
        let graph = setter.finalize()?;
        Ok(LoweredGraph { graph, _operations: operations, _details: details, _tensors: tensors })
    }

    /// Returns the descriptor of the graph.
    pub fn graph(&self) -> &Descriptor {
        &self.graph
    }
}

fn tensor(id: TensorId, tensor: &GraphTensor) -> Result<Descriptor, DriverError> {
    let setter = Setter::new(CUDNN_BACKEND_TENSOR_DESCRIPTOR)?;
    setter.set(CUDNN_ATTR_TENSOR_DATA_TYPE, &[data_type(tensor.element)])?;
    setter.set(CUDNN_ATTR_TENSOR_DIMENSIONS, &tensor.sizes)?;
    setter.set(CUDNN_ATTR_TENSOR_STRIDES, &tensor.strides)?;
    setter.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, &[id.uid()])?;
    setter.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[OPERAND_ALIGNMENT as i64])?;
    setter.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, &[tensor.home == TensorStorage::Virtual])?;
    let by_value = matches!(tensor.home, TensorStorage::Value(_));
    setter.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, &[by_value])?;
    setter.finalize()
}

fn operation(
    operation: &GraphOperation,
    tensors: &[Descriptor],
    details: &mut Vec<Descriptor>,
) -> Result<Descriptor, DriverError> {
    let of = |id: TensorId| [&tensors[id.0]];
    let setter = match *operation {
        GraphOperation::MatMul { a, b, c } => {
            let detail = Setter::new(CUDNN_BACKEND_MATMUL_DESCRIPTOR)?;
            detail.set(CUDNN_ATTR_MATMUL_COMP_TYPE, &[data_type(ElementType::F32)])?;
            let detail = detail.finalize()?;
            let setter = Setter::new(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)?;
            setter.set_descriptors(CUDNN_ATTR_OPERATION_MATMUL_ADESC, &of(a))?;
            setter.set_descriptors(CUDNN_ATTR_OPERATION_MATMUL_BDESC, &of(b))?;
            setter.set_descriptors(CUDNN_ATTR_OPERATION_MATMUL_CDESC, &of(c))?;
            setter.set_descriptors(CUDNN_ATTR_OPERATION_MATMUL_DESC, &[&detail])?;
            details.push(detail);
            setter
        }
        GraphOperation::Pointwise { mode, x, b, t, y } => {
            let detail = pointwise(mode)?;
            let setter = Setter::new(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?;
            setter.set_descriptors(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[&detail])?;
            setter.set_descriptors(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &of(x))?;
            if let Some(b) = b {
                setter.set_descriptors(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &of(b))?;
            }
            if let Some(t) = t {
                setter.set_descriptors(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, &of(t))?;
            }
            setter.set_descriptors(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &of(y))?;
            details.push(detail);
            setter
        }
        GraphOperation::Reduce { by, x, y } => {
            let detail = Setter::new(CUDNN_BACKEND_REDUCTION_DESCRIPTOR)?;
            let operator = match by {
                Reduction::Sum => cudnnReduceTensorOp_t::CUDNN_REDUCE_TENSOR_ADD,
                Reduction::Max => cudnnReduceTensorOp_t::CUDNN_REDUCE_TENSOR_MAX,
            };
            detail.set(CUDNN_ATTR_REDUCTION_OPERATOR, &[operator])?;
            detail.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, &[data_type(ElementType::F32)])?;
            let detail = detail.finalize()?;
            let setter = Setter::new(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)?;
            setter.set_descriptors(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, &of(x))?;
            setter.set_descriptors(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, &of(y))?;
            setter.set_descriptors(CUDNN_ATTR_OPERATION_REDUCTION_DESC, &[&detail])?;
            details.push(detail);
            setter
        }
        GraphOperation::Transpose { x, y } => {
            let setter = Setter::new(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)?;
            setter.set_descriptors(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, &of(x))?;
            setter.set_descriptors(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, &of(y))?;
            setter
        }
    };
    setter.finalize()
}

fn pointwise(mode: Pointwise) -> Result<Descriptor, DriverError> {
    use cudnnPointwiseMode_t::*;
    let setter = Setter::new(CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?;
    let (name, precision) = match mode {
        Pointwise::Add => (CUDNN_POINTWISE_ADD, ElementType::F32),
        Pointwise::AddIndex => (CUDNN_POINTWISE_ADD, ElementType::I32),
        Pointwise::Sub => (CUDNN_POINTWISE_SUB, ElementType::F32),
        Pointwise::Mul => (CUDNN_POINTWISE_MUL, ElementType::F32),
        Pointwise::Div => (CUDNN_POINTWISE_DIV, ElementType::F32),
        Pointwise::Exp => (CUDNN_POINTWISE_EXP, ElementType::F32),
        Pointwise::Log => (CUDNN_POINTWISE_LOG, ElementType::F32),
        Pointwise::Identity => (CUDNN_POINTWISE_IDENTITY, ElementType::F32),
        Pointwise::Index(_) => (CUDNN_POINTWISE_GEN_INDEX, ElementType::I32),
        Pointwise::AtLeast => (CUDNN_POINTWISE_CMP_GE, ElementType::Bool),
        Pointwise::Above => (CUDNN_POINTWISE_CMP_GT, ElementType::Bool),
        Pointwise::Select => (CUDNN_POINTWISE_BINARY_SELECT, ElementType::F32),
    };
    setter.set(CUDNN_ATTR_POINTWISE_MODE, &[name])?;
    setter.set(CUDNN_ATTR_POINTWISE_MATH_PREC, &[data_type(precision)])?;
    if let Pointwise::Index(dim) = mode {
        setter.set(CUDNN_ATTR_POINTWISE_AXIS, &[dim as i64])?;
    }
    setter.finalize()
}

fn data_type(element: ElementType) -> cudnnDataType_t {
    match element {
        ElementType::Bf16 => cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        ElementType::F32 => cudnnDataType_t::CUDNN_DATA_FLOAT,
        ElementType::I32 => cudnnDataType_t::CUDNN_DATA_INT32,
        ElementType::Bool => cudnnDataType_t::CUDNN_DATA_BOOLEAN,
    }
}

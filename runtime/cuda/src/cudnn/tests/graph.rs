use std::collections::HashSet;

use super::sizes;
use crate::cudnn::{
    AttentionPass, BandMask, CudnnAttentionSizes, ElementType, GraphOperand, GraphOperation,
    GraphScalar, OperationGraph, Pointwise, TensorId, TensorStorage,
};

const FORWARD: AttentionPass = AttentionPass::Forward;
const EXACT: AttentionPass = AttentionPass::Backward { deterministic: true };
const ATOMIC: AttentionPass = AttentionPass::Backward { deterministic: false };

fn operands(graph: &OperationGraph) -> HashSet<GraphOperand> {
    graph.operands().map(|(_, operand)| operand).collect()
}

fn result(operation: &GraphOperation) -> TensorId {
    match *operation {
        GraphOperation::MatMul { c, .. } => c,
        GraphOperation::Pointwise { y, .. }
        | GraphOperation::Reduce { y, .. }
        | GraphOperation::Transpose { y, .. } => y,
    }
}

fn inputs(operation: &GraphOperation) -> Vec<TensorId> {
    match *operation {
        GraphOperation::MatMul { a, b, .. } => vec![a, b],
        GraphOperation::Pointwise { x, b, t, .. } => {
            [Some(x), b, t].into_iter().flatten().collect()
        }
        GraphOperation::Reduce { x, .. } | GraphOperation::Transpose { x, .. } => vec![x],
    }
}

/// The library recognizes attention by its operations; these are the counts of NVIDIA's own graphs.
#[test]
fn graphs_have_the_size_of_the_known_pattern() {
    let plain = sizes(8, 1024, 12, 12, 64, true);
    let grouped = CudnnAttentionSizes { kv_heads: 4, ..plain };
    for (pass, sizes, tensors, operations) in [
        (FORWARD, plain, 19, 14),
        (FORWARD, grouped, 19, 14),
        (ATOMIC, plain, 31, 22),
        (ATOMIC, grouped, 33, 24),
        (EXACT, plain, 30, 21),
        (EXACT, grouped, 32, 23),
    ] {
        let graph = pass.graph(sizes);
        assert_eq!((graph.tensors.len(), graph.operations.len()), (tensors, operations), "{pass}");
        // The causal mask adds two indices, a comparison, a selection and its result.
        let masked = |right, left| {
            let graph = pass.graph(CudnnAttentionSizes { mask: BandMask { right, left }, ..sizes });
            (graph.tensors.len(), graph.operations.len())
        };
        assert_eq!(masked(None, None), (tensors - 5, operations - 4), "{pass}");
        // A window to the left adds two indices, a sum, a comparison and a selection, with a result each, and two
        // scalars; a distance to the right one sum and its scalar.
        assert_eq!(masked(Some(0), Some(100)), (tensors + 7, operations + 5), "{pass}");
        assert_eq!(masked(Some(20), Some(100)), (tensors + 9, operations + 6), "{pass}");
        assert_eq!(masked(None, Some(100)), (tensors + 2, operations + 1), "{pass}");
    }
}

#[test]
fn tensors_are_written_once_before_they_are_read() {
    let window = BandMask { right: Some(1), left: Some(3) };
    for mask in [BandMask::ALL, BandMask::CAUSAL, window] {
        for kv_heads in [1, 2, 6] {
            for pass in [FORWARD, EXACT, ATOMIC] {
                let sizes = sizes(2, 5, 6, kv_heads, 8, false);
                let graph = pass.graph(CudnnAttentionSizes { mask, keys: 7, ..sizes });
                let results: Vec<_> = graph.operations.iter().map(|o| result(o).0).collect();
                let mut known: HashSet<_> = (0..graph.tensors.len()).collect();
                for id in &results {
                    assert!(known.remove(id), "{pass}: tensor {id} has two origins");
                }
                for operation in &graph.operations {
                    for input in inputs(operation) {
                        assert!(known.contains(&input.0), "{pass}: {operation:?} comes too early");
                    }
                    known.insert(result(operation).0);
                }
                // Tensors that are not computed are inputs, and every input is used.
                let read: HashSet<_> =
                    graph.operations.iter().flat_map(inputs).map(|id| id.0).collect();
                for (id, tensor) in graph.tensors.iter().enumerate() {
                    let computed = results.contains(&id);
                    match tensor.home {
                        TensorStorage::Virtual => assert!(computed && read.contains(&id)),
                        TensorStorage::Value(_) => assert!(!computed && read.contains(&id)),
                        TensorStorage::Device(_) => assert!(computed || read.contains(&id)),
                    }
                }
            }
        }
    }
}

#[test]
fn operands_are_those_of_the_pass() {
    use GraphOperand::*;
    let sizes = sizes(1, 4, 2, 2, 8, true);
    assert_eq!(operands(&FORWARD.graph(sizes)), HashSet::from([Q, K, V, Out, Lse]));
    let exact = HashSet::from([Q, K, V, Out, Lse, DOut, DQ, DK, DV, RowSum]);
    assert_eq!(operands(&EXACT.graph(sizes)), exact);
    assert_eq!(&operands(&ATOMIC.graph(sizes)) - &exact, HashSet::from([DQSum]));
}

#[test]
fn scalars_are_passed_by_value() {
    use GraphScalar::{LeftBound, Masked, One, RightBound, Scale};
    let scalars = |pass: AttentionPass, mask| -> Vec<_> {
        let graph = pass.graph(CudnnAttentionSizes { mask, ..sizes(1, 4, 2, 2, 8, false) });
        for (id, scalar) in graph.scalars() {
            let tensor = &graph.tensors[id.0];
            let integer = scalar == RightBound;
            let element = if integer { ElementType::I32 } else { ElementType::F32 };
            assert_eq!((tensor.element, tensor.sizes), (element, [1; 4]));
        }
        graph.scalars().map(|(_, scalar)| scalar).collect()
    };
    assert_eq!(scalars(FORWARD, BandMask::ALL), [Scale]);
    assert_eq!(scalars(FORWARD, BandMask::CAUSAL), [Scale, Masked]);
    assert_eq!(scalars(EXACT, BandMask::CAUSAL), [Scale, One, Masked]);
    let window = BandMask { right: Some(0), left: Some(2) };
    assert_eq!(scalars(FORWARD, window), [Scale, Masked, Masked, LeftBound]);
    let window = BandMask { right: Some(1), left: Some(2) };
    assert_eq!(scalars(EXACT, window), [Scale, One, Masked, RightBound, Masked, LeftBound]);
}

/// `[batch, seq, heads, head_dim]` in memory, in the library's order: batch, head, position, element.
#[test]
fn operands_have_the_layout_of_projections() {
    let graph = ATOMIC.graph(sizes(2, 100, 6, 3, 16, true));
    let form = |wanted| {
        let (id, _) = graph.operands().find(|(_, operand)| *operand == wanted).expect("an operand");
        let tensor = &graph.tensors[id.0];
        (tensor.element, tensor.sizes, tensor.strides)
    };
    for operand in [GraphOperand::Q, GraphOperand::Out, GraphOperand::DOut, GraphOperand::DQ] {
        assert_eq!(form(operand), (ElementType::Bf16, [2, 6, 100, 16], [9600, 16, 96, 1]));
    }
    for operand in [GraphOperand::DK, GraphOperand::DV] {
        assert_eq!(form(operand), (ElementType::Bf16, [2, 3, 100, 16], [4800, 16, 48, 1]));
    }
    for operand in [GraphOperand::K, GraphOperand::V] {
        assert_eq!(form(operand), (ElementType::Bf16, [2, 3, 16, 100], [4800, 16, 1, 48]));
    }
    for operand in [GraphOperand::Lse, GraphOperand::RowSum] {
        assert_eq!(form(operand), (ElementType::F32, [2, 6, 100, 1], [600, 100, 1, 1]));
    }
    assert_eq!(form(GraphOperand::DQSum), (ElementType::F32, [2, 6, 100, 16], [9600, 1600, 16, 1]));
}

/// Other keys than queries, with gaps between their samples, and values of another width.
#[test]
fn keys_and_values_have_sizes_of_their_own() {
    let square = sizes(2, 100, 6, 3, 24, true);
    let sizes = CudnnAttentionSizes { keys: 150, key_pitch: 200, value_dim: 16, ..square };
    let graph = ATOMIC.graph(sizes);
    let form = |wanted| {
        let (id, _) = graph.operands().find(|(_, operand)| *operand == wanted).expect("an operand");
        let tensor = &graph.tensors[id.0];
        (tensor.sizes, tensor.strides)
    };
    assert_eq!(form(GraphOperand::Q), ([2, 6, 100, 24], [14400, 24, 144, 1]));
    assert_eq!(form(GraphOperand::Out), ([2, 6, 100, 16], [9600, 16, 96, 1]));
    assert_eq!(form(GraphOperand::K), ([2, 3, 24, 150], [14400, 24, 1, 72]));
    assert_eq!(form(GraphOperand::V), ([2, 3, 16, 150], [9600, 16, 1, 48]));
    assert_eq!(form(GraphOperand::DK), ([2, 3, 150, 24], [14400, 24, 72, 1]));
    assert_eq!(form(GraphOperand::DV), ([2, 3, 150, 16], [9600, 16, 48, 1]));
    assert_eq!(form(GraphOperand::DQSum), ([2, 6, 100, 24], [14400, 2400, 24, 1]));
}

#[test]
fn uids_are_distinct_and_none_is_zero() {
    let graph = ATOMIC.graph(sizes(1, 4, 2, 1, 8, true));
    let uids: HashSet<_> = (0..graph.tensors.len()).map(|index| TensorId(index).uid()).collect();
    assert_eq!(uids.len(), graph.tensors.len());
    assert!(!uids.contains(&0));
}

/// The form with an f32 accumulator only can be computed by atomics.
#[test]
fn deterministic_graph_has_no_accumulator() {
    let sizes = sizes(1, 4, 2, 1, 8, true);
    let last = |pass: AttentionPass| pass.graph(sizes).operations.pop();
    assert!(matches!(last(EXACT), Some(GraphOperation::MatMul { .. })));
    let mode = Pointwise::Identity;
    assert!(matches!(last(ATOMIC), Some(GraphOperation::Pointwise { mode: m, .. }) if m == mode));
    assert!(FORWARD.is_deterministic() && EXACT.is_deterministic() && !ATOMIC.is_deterministic());
}

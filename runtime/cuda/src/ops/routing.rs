//! Routing of tokens to experts (MoE), on GPUs.

use crate::gpu::args;
use crate::kernels::ROUTING;
use crate::{CudaBackend, GpuContext, Grid};
use meshwright_backend::ops::routing::{
    ChoiceScoresArgs, CombineTokensArgs, CombineWeightGradArgs, DispatchTokensArgs,
    GroupByExpertArgs, RouterAuxiliaryLossArgs, RouterAuxiliaryLossBackwardArgs, RouterOptions,
    RouterScore, RouterWeightsArgs, RouterWeightsBackwardArgs, TopKArgs,
};
use meshwright_backend::{DType, MAX_TOP_K, RoutingOps, RoutingShape, View, ViewMut};

use super::launch::{
    THREADS, address, aligned, check_operand, covering, float_name, to_u32, vector_width,
};
use super::router;
use super::sort::SortSpace;

impl RoutingOps for CudaBackend {
    fn top_k(&self, args: TopKArgs) {
        let TopKArgs { experts, k, scores, values, choices } = args;
        let gpu = self.gpu();
        assert!((1..=MAX_TOP_K.min(experts)).contains(&k), "top_k: {k} of {experts} experts");
        let [values, choices] = [values.as_view(), choices.as_view()];
        let tokens = scores.len() / experts;
        assert_eq!(scores.len(), tokens * experts, "top_k: whole rows of {experts} scores");
        check_operand("values", values, DType::F32, tokens * k);
        check_operand("choices", choices, DType::U32, tokens * k);
        let name = format!("top_k_{}", float_name(scores.dtype()));
        let grid = covering(gpu, tokens as u64 * 32);
        let (rows, cols, k) = (tokens as u64, to_u32(experts), to_u32(k));
        // SAFETY: `scores` has these rows, and both results `k` elements for each.
        unsafe {
            gpu.launch(
                (&ROUTING, &name),
                grid,
                args![address(scores), rows, cols, k, address(values), address(choices)],
            );
        }
    }

    fn group_by_expert(&self, args: GroupByExpertArgs) {
        let GroupByExpertArgs { choices, counts, order, positions } = args;
        let gpu = self.gpu();
        let [counts, order, positions] = [&counts, &order, &positions].map(ViewMut::as_view);
        let n = choices.len() as u64;
        check_operand("choices", choices, DType::U32, choices.len());
        check_operand("counts", counts, DType::U32, counts.len());
        check_operand("order", order, DType::U32, choices.len());
        check_operand("positions", positions, DType::U32, choices.len());
        let experts = to_u32(counts.len());
        let space = SortSpace::new(gpu.workspace(SortSpace::bytes(choices.len())), choices.len());
        // SAFETY: the workspace holds the key of every choice; the keys are written before they are sorted, and the
        // largest is the number of experts; the results have an element for every expert or choice.
        unsafe {
            gpu.launch(
                (&ROUTING, "keys_of_choices"),
                covering(gpu, n),
                args![address(choices), n, experts, space.keys],
            );
            let sorted = space.sort(gpu, u64::from(experts));
            gpu.launch(
                (&ROUTING, "count_choices"),
                covering(gpu, u64::from(experts)),
                args![sorted.keys, n, experts, address(counts)],
            );
            gpu.launch(
                (&ROUTING, "positions_of_choices"),
                covering(gpu, n),
                args![sorted.order, n, address(order), address(positions)],
            );
        }
    }

    fn dispatch_tokens(&self, shape: RoutingShape, args: DispatchTokensArgs) {
        let DispatchTokensArgs { x, order, weights, out } = args;
        let (gpu, out) = (self.gpu(), out.as_view());
        let cols = x.len().checked_div(shape.tokens).unwrap_or(0);
        assert_eq!(x.len(), shape.tokens * cols, "dispatch_tokens: rows of {shape:?}");
        check_operand("order", order, DType::U32, order.len());
        check_operand("out", out, x.dtype(), order.len() * cols);
        let weights = weights_address(weights, shape);
        let rows = RowLaunch::new(gpu, "to_experts", order.len(), cols, [x, out]);
        let (n, k) = (order.len() as u64, to_u32(shape.top_k));
        // SAFETY: `order` holds choices, whose tokens have rows of `x`; `out` has a row for each.
        unsafe {
            gpu.launch(
                (&ROUTING, &rows.name),
                rows.grid,
                args![
                    address(x),
                    address(order),
                    weights,
                    n,
                    k,
                    cols as u64,
                    address(out),
                    rows.width
                ],
            );
        }
    }

    fn combine_tokens(&self, shape: RoutingShape, args: CombineTokensArgs) {
        let CombineTokensArgs { x, positions, weights, out } = args;
        let (gpu, out) = (self.gpu(), out.as_view());
        let cols = out.len().checked_div(shape.tokens).unwrap_or(0);
        let rows = row_count(x, cols);
        check_operand("positions", positions, DType::U32, shape.choices());
        check_operand("out", out, x.dtype(), shape.tokens * cols);
        let weights = weights_address(weights, shape);
        let launch = RowLaunch::new(gpu, "to_tokens", shape.tokens, cols, [x, out]);
        let (tokens, k, cols) = (shape.tokens as u64, to_u32(shape.top_k), cols as u64);
        let (x, positions, out) = (address(x), address(positions), address(out));
        // SAFETY: rows of `x` are read only if `x` has them; there is a position and a weight for every choice.
        unsafe {
            gpu.launch(
                (&ROUTING, &launch.name),
                launch.grid,
                args![x, rows, positions, weights, tokens, k, cols, out, launch.width],
            );
        }
    }

    fn combine_weight_grad(&self, shape: RoutingShape, args: CombineWeightGradArgs) {
        let CombineWeightGradArgs { x, positions, dy, dweights } = args;
        let (gpu, dweights) = (self.gpu(), dweights.as_view());
        let cols = dy.len().checked_div(shape.tokens).unwrap_or(0);
        let rows = row_count(x, cols);
        check_operand("dy", dy, x.dtype(), shape.tokens * cols);
        check_operand("positions", positions, DType::U32, shape.choices());
        check_operand("dweights", dweights, DType::F32, shape.choices());
        let name = format!("dots_{}", float_name(x.dtype()));
        let (n, k, cols) = (shape.choices() as u64, to_u32(shape.top_k), cols as u64);
        // SAFETY: as in `combine_tokens`.
        unsafe {
            gpu.launch(
                (&ROUTING, &name),
                covering(gpu, n * 32),
                args![
                    address(x),
                    rows,
                    address(positions),
                    address(dy),
                    n,
                    k,
                    cols,
                    address(dweights)
                ],
            );
        }
    }

    fn choice_scores(&self, options: RouterOptions, args: ChoiceScoresArgs) {
        router::choice_scores(self.gpu(), options, args);
    }

    fn router_weights(&self, options: RouterOptions, args: RouterWeightsArgs) {
        router::router_weights(self.gpu(), options, args);
    }

    fn router_weights_backward(&self, options: RouterOptions, args: RouterWeightsBackwardArgs) {
        router::router_weights_backward(self.gpu(), options, args);
    }

    fn router_auxiliary_loss(&self, score: RouterScore, args: RouterAuxiliaryLossArgs) {
        router::router_auxiliary_loss(self.gpu(), score, args);
    }

    fn router_auxiliary_loss_backward(
        &self,
        score: RouterScore,
        args: RouterAuxiliaryLossBackwardArgs,
    ) {
        router::router_auxiliary_loss_backward(self.gpu(), score, args);
    }
}

/// Returns the number of rows of `cols` elements.
fn row_count(x: View, cols: usize) -> u64 {
    let rows = x.len().checked_div(cols).unwrap_or(0);
    assert_eq!(x.len(), rows * cols, "{} elements are whole rows of {cols}", x.len());
    rows as u64
}

/// Returns the address of the weights, one for every choice; 0 if they are absent.
fn weights_address(weights: Option<View>, shape: RoutingShape) -> u64 {
    weights.map_or(0, |weights| {
        check_operand("weights", weights, DType::F32, shape.choices());
        address(weights)
    })
}

/// A launch with neighboring threads on one row.
struct RowLaunch {
    name: String,
    grid: Grid,
    /// Threads of a row.
    width: u32,
}

impl RowLaunch {
    fn new(
        gpu: &GpuContext,
        kernel: &str,
        rows: usize,
        cols: usize,
        matrices: [View; 2],
    ) -> RowLaunch {
        let dtype = matrices[0].dtype();
        let vector = vector_width(dtype);
        let vectors = cols.is_multiple_of(vector) && aligned(&matrices, vector);
        let (suffix, vector) = if vectors { ("_vectors", vector) } else { ("", 1) };
        let width = cols.div_ceil(vector).next_power_of_two().min(THREADS as usize) as u32;
        RowLaunch {
            name: format!("{kernel}_{}{suffix}", float_name(dtype)),
            grid: covering(gpu, rows as u64 * u64::from(width)),
            width,
        }
    }
}

//! Routing of tokens to experts.
//!
//! Each token has `k` choices, and choice `c` is of token `c / k`. Choices are grouped by expert, in the order of tokens
//! for each: the one at place `p` is `order[p]`, and the place of choice `c` is `places[c]`.

use crate::backend::cuda::gpu::args;
use crate::backend::cuda::kernels::ROUTING;
use crate::backend::cuda::{Gpu, Grid};
use crate::backend::{DType, View, ViewMut};

use super::launch::{THREADS, aligned, at, covering, float_name, wide};
use super::sort::SortSpace;

/// Most choices of one token.
pub const MOST_CHOICES: usize = 8;

/// The `k` largest scores of each row of `scores[tokens, experts]`, the largest first, and their columns.
///
/// Of equal scores the lower column comes first; NaN is larger than any number. `values`: f32, `choices`: u32, both
/// `[tokens, k]` and written.
///
/// # Panics
/// When operands do not fit, or `k` is 0, beyond [`MOST_CHOICES`] or beyond `experts`.
pub fn top_k(gpu: &Gpu, experts: usize, k: usize, scores: View, values: ViewMut, choices: ViewMut) {
    assert!((1..=MOST_CHOICES.min(experts)).contains(&k), "{k} of {experts} experts");
    let [values, choices] = [values.as_view(), choices.as_view()];
    let tokens = scores.len() / experts;
    assert_eq!(scores.len(), tokens * experts, "whole rows of scores");
    check("values", values, DType::F32, tokens * k);
    check("choices", choices, DType::U32, tokens * k);
    let name = format!("top_k_{}", float_name(scores.dtype()));
    let grid = covering(gpu, tokens as u64 * 32);
    let (rows, cols, k) = (tokens as u64, narrow(experts), narrow(k));
    // SAFETY: `scores` has these rows, and both results `k` elements for each.
    unsafe {
        gpu.launch(
            (&ROUTING, &name),
            grid,
            args![at(scores), rows, cols, k, at(values), at(choices)],
        );
    }
}

/// Groups `choices` (u32) by expert: writes how many each of the `counts.len()` experts has, the order of the groups, and
/// the place of each choice in it (all u32).
///
/// Choices of experts that there are not come last, and are not counted.
///
/// # Panics
/// When operands do not fit.
pub fn group(gpu: &Gpu, choices: View, counts: ViewMut, order: ViewMut, places: ViewMut) {
    let [counts, order, places] = [&counts, &order, &places].map(ViewMut::as_view);
    let n = choices.len() as u64;
    check("choices", choices, DType::U32, choices.len());
    check("counts", counts, DType::U32, counts.len());
    check("order", order, DType::U32, choices.len());
    check("places", places, DType::U32, choices.len());
    let experts = narrow(counts.len());
    let space = SortSpace::new(gpu.workspace(SortSpace::bytes(choices.len())), choices.len());
    // SAFETY: there is room for the key of every choice; the keys are written before they are sorted, and the largest is
    // the number of experts; the results have an element for every expert or choice.
    unsafe {
        gpu.launch(
            (&ROUTING, "keys_of_choices"),
            covering(gpu, n),
            args![at(choices), n, experts, space.keys],
        );
        let sorted = space.sort(gpu, u64::from(experts));
        gpu.launch(
            (&ROUTING, "count_choices"),
            covering(gpu, u64::from(experts)),
            args![sorted.keys, n, experts, at(counts)],
        );
        gpu.launch(
            (&ROUTING, "places_of_choices"),
            covering(gpu, n),
            args![sorted.order, n, at(order), at(places)],
        );
    }
}

/// Rows of `x[tokens, cols]` at the places of their choices: `out[p] = weights[order[p]] * x[order[p] / k]`.
///
/// `order`: u32, of which there may be fewer than choices; `weights`: f32, one per choice, 1 if there are none; `out`:
/// `[order.len(), cols]`, written. It is what takes tokens to experts, and with weights the backward of [`to_tokens`].
///
/// # Panics
/// When operands do not fit.
pub fn to_experts(
    gpu: &Gpu,
    k: usize,
    x: View,
    order: View,
    weights: Option<View>,
    tokens: usize,
    out: ViewMut,
) {
    let out = out.as_view();
    let cols = x.len().checked_div(tokens).unwrap_or(0);
    assert_eq!(x.len(), tokens * cols, "a row for every token");
    check("order", order, DType::U32, order.len());
    check("out", out, x.dtype(), order.len() * cols);
    let weights = weights_of(weights, tokens * k);
    let rows = ByRow::new(gpu, "to_experts", order.len(), cols, [x, out]);
    let (n, k) = (order.len() as u64, narrow(k));
    // SAFETY: `order` holds choices, whose tokens have rows of `x`; `out` has a row for each.
    unsafe {
        gpu.launch(
            (&ROUTING, &rows.name),
            rows.grid,
            args![at(x), at(order), weights, n, k, cols as u64, at(out), rows.width],
        );
    }
}

/// Sums of the rows of each token's choices: `out[t] = sum of weights[c] * x[places[c]]` over its choices in order.
///
/// `x`: `[rows, cols]`, and places from `rows` on count as zeros; `places`: u32, one per choice; `weights`: as for
/// [`to_experts`]; `out`: `[tokens, cols]`, written. It is what brings results of experts back, and without weights the
/// backward of [`to_experts`].
///
/// # Panics
/// When operands do not fit.
pub fn to_tokens(
    gpu: &Gpu,
    k: usize,
    x: View,
    places: View,
    weights: Option<View>,
    tokens: usize,
    out: ViewMut,
) {
    let out = out.as_view();
    let cols = out.len().checked_div(tokens).unwrap_or(0);
    let rows = row_count(x, cols);
    check("places", places, DType::U32, tokens * k);
    check("out", out, x.dtype(), tokens * cols);
    let weights = weights_of(weights, tokens * k);
    let by_row = ByRow::new(gpu, "to_tokens", tokens, cols, [x, out]);
    let (tokens, k) = (tokens as u64, narrow(k));
    // SAFETY: rows of `x` are read only where it has them; there is a place and a weight for every choice.
    unsafe {
        gpu.launch(
            (&ROUTING, &by_row.name),
            by_row.grid,
            args![at(x), rows, at(places), weights, tokens, k, cols as u64, at(out), by_row.width],
        );
    }
}

/// Gradients of the weights of [`to_tokens`]: `dweights[c]` (f32) is the dot product of `dy[c / k]` and `x[places[c]]`, 0
/// where there is no such place. `x`: `[rows, cols]`, `dy`: `[tokens, cols]`, one dtype.
///
/// # Panics
/// When operands do not fit.
pub fn weight_gradients(
    gpu: &Gpu,
    k: usize,
    x: View,
    places: View,
    dy: View,
    tokens: usize,
    dweights: ViewMut,
) {
    let dweights = dweights.as_view();
    let cols = dy.len().checked_div(tokens).unwrap_or(0);
    let rows = row_count(x, cols);
    check("dy", dy, x.dtype(), tokens * cols);
    check("places", places, DType::U32, tokens * k);
    check("dweights", dweights, DType::F32, tokens * k);
    let name = format!("dots_{}", float_name(x.dtype()));
    let n = places.len() as u64;
    // SAFETY: as in `to_tokens`.
    unsafe {
        gpu.launch(
            (&ROUTING, &name),
            covering(gpu, n * 32),
            args![at(x), rows, at(places), at(dy), n, narrow(k), cols as u64, at(dweights)],
        );
    }
}

fn check(what: &str, view: View, dtype: DType, len: usize) {
    assert!(view.dtype() == dtype && view.len() == len, "`{what}` has {len} elements of {dtype}");
}

fn row_count(x: View, cols: usize) -> u64 {
    let rows = x.len().checked_div(cols).unwrap_or(0);
    assert_eq!(x.len(), rows * cols, "whole rows of the results of experts");
    rows as u64
}

fn weights_of(weights: Option<View>, choices: usize) -> u64 {
    weights.map_or(0, |weights| {
        check("weights", weights, DType::F32, choices);
        at(weights)
    })
}

/// A number that kernels take in 32 bits.
fn narrow(n: usize) -> u32 {
    u32::try_from(n).expect("experts and choices are counted in 32 bits")
}

/// A launch in which neighbouring threads share a row.
struct ByRow {
    name: String,
    grid: Grid,
    /// Threads of a row.
    width: u32,
}

impl ByRow {
    fn new(gpu: &Gpu, kernel: &str, rows: usize, cols: usize, matrices: [View; 2]) -> ByRow {
        let dtype = matrices[0].dtype();
        let vector = wide(dtype);
        let vectors = cols.is_multiple_of(vector) && aligned(&matrices, vector);
        let (suffix, vector) = if vectors { ("_vectors", vector) } else { ("", 1) };
        let width = cols.div_ceil(vector).next_power_of_two().min(THREADS as usize) as u32;
        ByRow {
            name: format!("{kernel}_{}{suffix}", float_name(dtype)),
            grid: covering(gpu, rows as u64 * u64::from(width)),
            width,
        }
    }
}

//! Gradients of leaves that are repeated along some dims: sums over the elements of the result that read one element.

use std::fmt::Arguments;

use super::params::Params;
use super::structure::RequestedGradient;
use super::sum_form::SumForm;
use super::{Generated, Structure, are_vectors, leaves_of, push_inputs, source};
use crate::GpuContext;
use crate::ops::launch::{address, aligned, covering, vector_width};
use crate::ops::partials::add_partials;
use meshwright_backend::{Expr, LeafGrad, LeafStrides, Node, View};

/// Threads that keep the memory of the largest devices busy. A constant, since the order of a sum must not depend on
/// the device.
const THREADS: u64 = 1 << 16;
/// Minimum elements per thread of a part, so that the partial sums are small compared to the operands.
const ELEMENTS: u64 = 16;

/// The dims of the result, of which the kept ones select an element of the leaf and the others repeat it. The elements
/// that repeat it are summed in parts first.
pub(super) struct RepeatedDims {
    /// Sizes, strides in the result and strides in the leaf of the kept dims.
    kept: [Vec<u64>; 3],
    /// Sizes and strides in the result of the other dims.
    repeated: [Vec<u64>; 2],
    pub leaf_len: u64,
    repeats: u64,
    pub parts: u64,
    part_len: u64,
    /// Threads that sum the repeats of one element together; 1 if neighboring threads sum neighboring elements.
    lanes: u64,
    width: u64,
}

impl RepeatedDims {
    /// Chooses the parts, from sizes alone, for a leaf with these merged strides.
    pub fn new(strides: &LeafStrides, grad: View) -> RepeatedDims {
        let (mut kept, mut repeated) = ([const { Vec::new() }; 3], [const { Vec::new() }; 2]);
        let mut in_result = strides.result_len() as u64;
        for (size, stride) in strides.sizes.iter().zip(&strides.strides) {
            let (size, stride) = (*size as u64, *stride as u64);
            in_result /= size;
            if stride > 0 {
                kept.iter_mut().zip([size, in_result, stride]).for_each(|(of, x)| of.push(x));
            } else {
                repeated.iter_mut().zip([size, in_result]).for_each(|(of, x)| of.push(x));
            }
        }
        let in_lanes = strides.strides.last() == Some(&0);
        let [leaf_len, repeats] =
            [&kept[0], &repeated[0]].map(|sizes| sizes.iter().product::<u64>());
        // Kernels have at least one dim of either kind.
        if kept[0].is_empty() {
            kept = [vec![1], vec![0], vec![0]];
        }
        if repeated[0].is_empty() {
            repeated = [vec![1], vec![0]];
        }
        let width = vector_width(grad.dtype()) as u64;
        let lanes = if in_lanes { repeats.div_ceil(width).next_power_of_two().min(32) } else { 1 };
        let vectors = if in_lanes { leaf_len * lanes } else { (leaf_len / width).max(1) };
        let least = ELEMENTS * if in_lanes { lanes * width } else { 1 };
        let parts = (THREADS / vectors).clamp(1, repeats.div_ceil(least));
        let part_len = repeats.div_ceil(parts).next_multiple_of(if in_lanes { width } else { 1 });
        let parts = repeats.div_ceil(part_len);
        RepeatedDims { kept, repeated, leaf_len, repeats, parts, part_len, lanes, width }
    }

    /// Returns the form of the kernel.
    pub fn form(&self) -> SumForm {
        let in_lanes = self.repeated[1].last() == Some(&1);
        SumForm { kept: self.kept[0].len(), repeated: self.repeated[0].len(), in_lanes }
    }

    /// Returns the bytes of the partial sums of one leaf.
    pub fn bytes(&self) -> usize {
        (self.parts * self.leaf_len) as usize * size_of::<f32>()
    }

    /// Adds the parameters of the kernel. Returns the number of items for threads, and true if each thread computes
    /// aligned vectors of elements.
    pub fn push_repeats(
        &self,
        params: &mut Params,
        expr: &Expr,
        leaves: &[View],
        grad: View,
    ) -> (u64, bool) {
        let SumForm { kept, repeated, in_lanes } = self.form();
        let (mut whole, rows) = leaves_of(expr, leaves);
        whole.push(grad);
        let width = self.width as usize;
        let fits = |x: &u64| x.is_multiple_of(self.width);
        let (outer_leaf, outer_kept) =
            (&self.kept[2][..kept - 1], &self.kept[1][..kept - if in_lanes { 0 } else { 1 }]);
        let outer_repeated = &self.repeated[1][..repeated - usize::from(in_lanes)];
        // A vector lies along the innermost dim, and begins at a multiple of its width.
        let is_run = if in_lanes {
            self.repeated[0].last().is_some_and(fits)
        } else {
            self.kept[0].last().is_some_and(fits)
                && self.kept[2].last() == Some(&1)
                && outer_leaf.iter().all(fits)
        };
        let is_wide = is_run
            && outer_kept.iter().chain(outer_repeated).all(fits)
            && aligned(&whole, width)
            && are_vectors(&rows, width);
        params.push_words(
            format_args!("Repeats<{kept}, {repeated}> repeats"),
            self.kept.iter().chain(&self.repeated).flatten().copied().chain([
                self.leaf_len,
                self.repeats,
                self.parts,
                self.part_len,
            ]),
        );
        params.push_param(format_args!("uint32_t lanes"), self.lanes as u32);
        params.push_param(format_args!("uint32_t wide"), u32::from(is_wide));
        let vectors = if is_wide && !in_lanes { self.leaf_len / self.width } else { self.leaf_len };
        (self.parts * vectors * self.lanes, is_wide)
    }
}

impl Params {
    /// Adds a field of 64-bit words.
    pub fn push_words(&mut self, declaration: Arguments<'_>, words: impl IntoIterator<Item = u64>) {
        let words: Vec<u64> = words.into_iter().collect();
        self.push_bytes(declaration, align_of::<u64>(), bytemuck::cast_slice(&words));
    }
}

/// Computes the gradients of the leaves that are repeated along some dims: one kernel for all leaves with one pattern.
pub(super) fn sum_repeated(
    gpu: &GpuContext,
    (expr, leaves): (&Expr, &[View]),
    grad: View,
    requested: &[RequestedGradient],
    leaf_grads: &mut [Option<LeafGrad>],
) {
    for pattern in expr.stride_patterns() {
        let is_summed = |leaf: usize| {
            let is_along = |node: &Node| match node {
                Node::Along(of, strides) => *of == leaf && strides.merged() == pattern,
                _ => false,
            };
            requested[leaf] == RequestedGradient::RepeatedSum && expr.nodes.iter().any(is_along)
        };
        let summed: Vec<usize> = (0..leaves.len()).filter(|leaf| is_summed(*leaf)).collect();
        if summed.is_empty() {
            continue;
        }
        let kind = |leaf| {
            if summed.contains(&leaf) {
                RequestedGradient::RepeatedSum
            } else {
                RequestedGradient::No
            }
        };
        let requested: Vec<RequestedGradient> = (0..leaves.len()).map(kind).collect();
        let dims = RepeatedDims::new(&pattern, grad);
        let structure = Structure::repeated_sums(expr, grad.dtype(), &requested, dims.form());
        let kernel = Generated::new(gpu, structure);
        let mut params = kernel.params();
        let (items, is_aligned) = dims.push_repeats(&mut params, expr, leaves, grad);
        push_inputs(&mut params, expr, leaves, (grad.dtype(), is_aligned));
        let element = source::cpp_type(grad.dtype());
        params.push_param(format_args!("const {element}* grad"), address(grad));
        let mut parts = gpu.workspace(dims.bytes() * summed.len());
        let first = parts;
        for leaf in &summed {
            params.push_param(format_args!("float* sums{leaf}"), parts);
            parts += dims.bytes() as u64;
        }
        kernel.launch_kernel(covering(gpu, items), params, |fields| {
            source::backward(expr, grad.dtype(), &requested, Some(dims.form()), fields)
        });
        for (index, leaf) in summed.iter().enumerate() {
            let Some(slot) = &mut leaf_grads[*leaf] else { continue };
            let sum = LeafGrad { view: slot.view.reborrow(), accumulate: slot.accumulate };
            // SAFETY: the kernel before this one has written `dims.parts` rows of the leaf's length.
            unsafe { add_partials(gpu, [sum], first + (index * dims.bytes()) as u64, dims.parts) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwright_backend::{CachingAllocator, Category, DType};

    #[test]
    fn parts_cover_all_repeats() {
        let allocator = CachingAllocator::new();
        let grad = allocator.alloc(DType::Bf16, 1, Category::Workspace);
        for (sizes, strides) in [
            (vec![4, 100, 8], vec![8, 0, 1]),
            (vec![4, 100], vec![1, 0]),
            (vec![4, 5], vec![1, 0]),
            (vec![100_000], vec![0]),
            (vec![3, 7, 2, 5], vec![0, 2, 0, 14]),
        ] {
            let strides = LeafStrides { sizes, strides };
            let dims = RepeatedDims::new(&strides, grad.view());
            assert_eq!(dims.leaf_len as usize * dims.repeats as usize, strides.result_len());
            assert!(dims.parts * dims.part_len >= dims.repeats, "{strides:?}");
            assert!((dims.parts - 1) * dims.part_len < dims.repeats, "{strides:?}");
            assert!(dims.lanes.is_power_of_two() && dims.lanes <= 32);
        }
    }
}

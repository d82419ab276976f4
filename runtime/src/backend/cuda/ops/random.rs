//! Counter-based randomness: an element's value is a function of a key and its global index.

use bytemuck::{Pod, Zeroable};

use crate::backend::cuda::Gpu;
use crate::backend::cuda::gpu::args;
use crate::backend::cuda::kernels::RANDOM;
use crate::backend::{BlockIndex, ViewMut};

use super::launch::{at, covering, float_name};

/// Dims that a kernel counts in, after dims that lie together have been joined.
const DIMS: usize = 16;

/// `Place` of the kernels: where the elements of a block lie in its global tensor.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Place {
    offset: u64,
    dims: u64,
    size: [u64; DIMS],
    stride: [u64; DIMS],
}

impl Place {
    /// # Panics
    /// When a block is cut in more than 16 dims.
    fn new(index: &BlockIndex) -> Place {
        let mut place = Place { offset: 0, dims: 0, size: [1; DIMS], stride: [1; DIMS] };
        // The last dim first. One that is whole is joined by the dim before it, whose elements follow on.
        let (mut stride, mut joined) = (1, 1);
        for dim in (0..index.local.len()).rev() {
            let [local, global, offset] =
                [&index.local, &index.global, &index.offset].map(|sizes| sizes[dim] as u64);
            place.offset += offset * stride;
            if local != global || dim == 0 {
                let at = place.dims as usize;
                assert!(at < DIMS, "a block is cut in at most {DIMS} dims");
                place.size[at] = joined * local;
                place.stride[at] = stride / joined;
                place.dims += 1;
                joined = 1;
            } else {
                joined *= local;
            }
            stride *= global;
        }
        place.dims = place.dims.max(1);
        place
    }
}

/// See [`Backend::normal`](crate::backend::Backend::normal). The bits are those of the host's backend.
pub fn normal(gpu: &Gpu, key: u64, std: f32, index: &BlockIndex, out: ViewMut) {
    let out = out.as_view();
    assert_eq!(index.len(), out.len(), "the block index fits the operand");
    let n = out.len() as u64;
    let name = format!("normal_{}", float_name(out.dtype()));
    // SAFETY: the block has as many elements as the operand.
    unsafe {
        gpu.launch(
            (&RANDOM, &name),
            covering(gpu, n),
            args![key, std, Place::new(index), at(out), n],
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn global_index(place: &Place, mut local: u64) -> u64 {
        let mut index = place.offset;
        for dim in 0..place.dims as usize {
            let last = dim + 1 == place.dims as usize;
            let position = if last { local } else { local % place.size[dim] };
            index += position * place.stride[dim];
            local /= place.size[dim];
        }
        index
    }

    #[test]
    fn joined_dims_lead_to_the_same_global_index() {
        let blocks = [
            (vec![], vec![], vec![]),
            (vec![7], vec![20], vec![5]),
            (vec![3, 4], vec![3, 4], vec![0, 0]),
            (vec![3, 4], vec![9, 4], vec![6, 0]),
            (vec![3, 4], vec![3, 8], vec![0, 4]),
            (vec![2, 3, 4, 5], vec![4, 3, 8, 5], vec![2, 0, 3, 0]),
            (vec![2, 1, 4, 1, 3], vec![2, 1, 8, 1, 3], vec![0, 0, 1, 0, 0]),
        ];
        for (local, global, offset) in blocks {
            let index = BlockIndex { local, global, offset };
            let place = Place::new(&index);
            for i in 0..index.len() {
                assert_eq!(global_index(&place, i as u64), index.global_index(i), "{index:?}, {i}");
            }
        }
    }
}

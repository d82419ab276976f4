//! The parameter of a generated kernel: one struct, whose fields are declared as their values are put into it.

use bytemuck::Pod;

use crate::backend::{BlockIndex, Dropout};

/// Values of a kernel's `Params p`, and the declaration of that struct.
#[derive(Default)]
pub(super) struct Params {
    /// The values, laid out as C++ does.
    pub bytes: Vec<u8>,
    /// The declarations of the fields, one a line.
    pub fields: String,
}

impl Params {
    /// Adds a field of a C++ type that is laid out as `V`.
    pub fn push<V: Pod>(&mut self, cpp_type: &str, name: &str, value: V) {
        self.align(align_of::<V>());
        self.bytes.extend_from_slice(bytemuck::bytes_of(&value));
        self.fields += &format!("    {cpp_type} {name};\n");
    }

    /// Adds what one node of dropout draws by, as `kernels/map.cuh` declares it.
    pub fn push_dropout(&mut self, name: &str, dropout: &Dropout) {
        let strided = StridedBlock::of(&dropout.index);
        // At rate 1 beyond every possible draw.
        let threshold = (f64::from(dropout.rate) * 4_294_967_296.0) as u64;
        let keep = if dropout.rate < 1.0 { 1.0 / (1.0 - dropout.rate) } else { 0.0f32 };
        self.align(align_of::<u64>());
        for word in [dropout.key, threshold, strided.first] {
            self.bytes.extend_from_slice(bytemuck::bytes_of(&word));
        }
        self.bytes.extend_from_slice(bytemuck::cast_slice(&strided.sizes));
        self.bytes.extend_from_slice(bytemuck::cast_slice(&strided.strides));
        self.bytes.extend_from_slice(bytemuck::bytes_of(&keep));
        self.align(align_of::<u64>());
        self.fields += &format!("    Dropout<{}> {name};\n", strided.sizes.len());
    }

    /// Pads the struct to its size.
    pub fn finish(&mut self) {
        self.align(align_of::<u64>());
    }

    fn align(&mut self, bytes: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(bytes), 0);
    }
}

/// A [`BlockIndex`] whose neighbouring dims are one where the elements of both follow each other in the global tensor.
struct StridedBlock {
    /// Global index of the first element.
    first: u64,
    sizes: Vec<u64>,
    strides: Vec<u64>,
}

impl StridedBlock {
    fn of(index: &BlockIndex) -> StridedBlock {
        let (mut sizes, mut strides) = (Vec::new(), Vec::new());
        let (mut first, mut stride) = (0, 1);
        // From the last dim on: a dim joins the one behind it if that one is whole.
        let mut joins = false;
        for dim in (0..index.local.len()).rev() {
            let (local, global) = (index.local[dim] as u64, index.global[dim] as u64);
            first += index.offset[dim] as u64 * stride;
            match sizes.last_mut() {
                Some(size) if joins => *size *= local,
                _ => {
                    sizes.push(local);
                    strides.push(stride);
                }
            }
            joins = local == global;
            stride *= global;
        }
        if sizes.is_empty() {
            (sizes, strides) = (vec![1], vec![1]);
        }
        sizes.reverse();
        strides.reverse();
        StridedBlock { first, sizes, strides }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_dims_keep_global_indices() {
        let cases = [
            (vec![], vec![], vec![], 1),
            (vec![6], vec![6], vec![0], 1),
            (vec![2, 3, 4], vec![2, 3, 4], vec![0, 0, 0], 1),
            (vec![2, 3, 4], vec![5, 3, 4], vec![3, 0, 0], 1),
            (vec![2, 3, 4], vec![2, 6, 4], vec![0, 3, 0], 2),
            (vec![2, 3, 4], vec![2, 3, 8], vec![0, 0, 4], 2),
            (vec![2, 3, 4], vec![4, 6, 8], vec![2, 3, 4], 3),
            (vec![3, 1, 4], vec![3, 2, 4], vec![0, 1, 0], 2),
        ];
        for (local, global, offset, dims) in cases {
            let index = BlockIndex { local, global, offset };
            let strided = StridedBlock::of(&index);
            assert_eq!(strided.sizes.len(), dims, "{index:?}");
            for element in 0..index.len() {
                let (mut rest, mut found) = (element as u64, strided.first);
                for (size, stride) in strided.sizes.iter().zip(&strided.strides).rev() {
                    found += rest % size * stride;
                    rest /= size;
                }
                assert_eq!(found, index.global_index(element), "{index:?}");
            }
        }
    }
}

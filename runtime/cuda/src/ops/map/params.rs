//! The parameter of a generated kernel: one struct, whose fields are declared as their values are added.

use std::fmt::{Arguments, Write};

use bytemuck::Pod;

use crate::ops::strided::StridedBlock;
use meshwright_backend::DropoutMask;

/// The values of the parameter `Params p` of a kernel, and the declaration of the struct if the kernel is not generated
/// yet.
pub(super) struct Params {
    /// The values in the C++ layout.
    pub bytes: Vec<u8>,
    /// The declarations of the fields, one per line.
    pub fields: Option<String>,
}

impl Params {
    /// Creates an empty parameter, with declarations of fields if `declared`.
    pub fn new(declared: bool) -> Params {
        Params { bytes: Vec::with_capacity(256), fields: declared.then(String::new) }
    }

    /// Adds a field, declared as in `uint64_t n`, of a C++ type that is laid out as `V`.
    pub fn push_param<V: Pod>(&mut self, declaration: Arguments<'_>, value: V) {
        self.push_bytes(declaration, align_of::<V>(), bytemuck::bytes_of(&value));
    }

    /// Adds a field of these bytes.
    pub fn push_bytes(&mut self, declaration: Arguments<'_>, align: usize, bytes: &[u8]) {
        self.align(align);
        self.bytes.extend_from_slice(bytes);
        self.declare(declaration);
    }

    /// Adds the parameters of one dropout node, as declared in `kernels/map.cuh`.
    pub fn push_dropout(&mut self, name: Arguments<'_>, dropout: &DropoutMask) {
        let strided = StridedBlock::from_index(&dropout.index);
        // At rate 1 the threshold is beyond every possible draw.
        let threshold = (f64::from(dropout.rate) * 4_294_967_296.0) as u64;
        let keep = if dropout.rate < 1.0 { 1.0 / (1.0 - dropout.rate) } else { 0.0f32 };
        self.align(align_of::<u64>());
        for word in [dropout.key, threshold, strided.first] {
            self.bytes.extend_from_slice(bytemuck::bytes_of(&word));
        }
        self.bytes.extend_from_slice(bytemuck::cast_slice(&strided.sizes));
        self.bytes.extend_from_slice(bytemuck::cast_slice(&strided.strides));
        self.bytes.extend_from_slice(bytemuck::cast_slice(&strided.gaps));
        self.bytes.extend_from_slice(bytemuck::bytes_of(&keep));
        self.align(align_of::<u64>());
        let gaps = if strided.gaps.is_empty() { "" } else { "WithGaps" };
        self.declare(format_args!("Dropout{gaps}<{}> {name}", strided.sizes.len()));
    }

    /// Pads the struct to its size.
    pub fn finish_struct(&mut self) {
        self.align(align_of::<u64>());
    }

    fn declare(&mut self, declaration: Arguments<'_>) {
        if let Some(fields) = &mut self.fields {
            let _ = writeln!(fields, "    {declaration};");
        }
    }

    fn align(&mut self, bytes: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(bytes), 0);
    }
}

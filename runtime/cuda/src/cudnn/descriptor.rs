//! Descriptors, the objects of the library's graph API: each is created, given attributes, and finalized.

use std::ffi::c_void;
use std::{fmt, ptr};

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptor_t, cudnnBackendDescriptorType_t as Kind, cudnnBackendHeurMode_t,
    cudnnBackendKnobType_t, cudnnDataType_t, cudnnHandle_t, cudnnPointwiseMode_t,
    cudnnReduceTensorOp_t,
};

use crate::DriverError;

use super::library::{Library, check_status, library};

/// A Rust type of attribute values.
///
/// # Safety
/// The memory layout is that of the library's type `TYPE`.
pub(super) unsafe trait Attribute: Copy {
    const TYPE: Type;
}

macro_rules! attributes {
    ($($rust:ty => $library:ident),* $(,)?) => {
        // SAFETY: the types of the bindings are the library's, and the others are the same in C.
        $(unsafe impl Attribute for $rust { const TYPE: Type = Type::$library; })*
    };
}
attributes! {
    i64 => CUDNN_TYPE_INT64,
    bool => CUDNN_TYPE_BOOLEAN,
    u8 => CUDNN_TYPE_CHAR,
    Address => CUDNN_TYPE_VOID_PTR,
    cudnnHandle_t => CUDNN_TYPE_HANDLE,
    cudnnDataType_t => CUDNN_TYPE_DATA_TYPE,
    cudnnPointwiseMode_t => CUDNN_TYPE_POINTWISE_MODE,
    cudnnReduceTensorOp_t => CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
    cudnnBackendHeurMode_t => CUDNN_TYPE_HEUR_MODE,
    cudnnBackendKnobType_t => CUDNN_TYPE_KNOB_TYPE,
}

/// A device or host address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Address(pub u64);

/// A descriptor, destroyed on drop.
pub(super) struct Descriptor {
    library: Library,
    raw: cudnnBackendDescriptor_t,
}

// SAFETY: a descriptor is not bound to a thread. Shared descriptors are only read: attributes are set through `Setter`,
// which finalizing consumes.
unsafe impl Send for Descriptor {}
// SAFETY: see above.
unsafe impl Sync for Descriptor {}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Descriptor({:p})", self.raw)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: created by the library and destroyed once. Errors cannot be handled here.
        let _ = unsafe { (self.library.cudnnBackendDestroyDescriptor)(self.raw) };
    }
}

/// A descriptor that is not yet finalized.
pub(super) struct Setter {
    descriptor: Descriptor,
    kind: Kind,
}

impl Setter {
    pub fn new(kind: Kind) -> Result<Setter, DriverError> {
        Ok(Setter { descriptor: Descriptor::empty(kind)?, kind })
    }

    /// Sets an attribute to values of one type.
    pub fn set<V: Attribute>(&self, name: Name, values: &[V]) -> Result<(), DriverError> {
        // SAFETY: the library copies `values.len()` values of the matching type.
        unsafe { self.set_raw(name, V::TYPE, values.len(), values.as_ptr().cast()) }
    }

    /// Sets an attribute to other descriptors, which must outlive this one.
    pub fn set_descriptors(&self, name: Name, values: &[&Descriptor]) -> Result<(), DriverError> {
        let raw: Vec<_> = values.iter().map(|value| value.raw).collect();
        let kind = Type::CUDNN_TYPE_BACKEND_DESCRIPTOR;
        // SAFETY: as in `set`.
        unsafe { self.set_raw(name, kind, raw.len(), raw.as_ptr().cast()) }
    }

    /// # Safety
    /// `values` points at `count` values of type `kind`.
    unsafe fn set_raw(
        &self,
        name: Name,
        kind: Type,
        count: usize,
        values: *const c_void,
    ) -> Result<(), DriverError> {
        let library = self.descriptor.library;
        // SAFETY: as the caller promises.
        let status = unsafe {
            (library.cudnnBackendSetAttribute)(
                self.descriptor.raw,
                name,
                kind,
                count as i64,
                values,
            )
        };
        check_status(library, status, "cudnnBackendSetAttribute", || {
            format!("{name:?} of {:?}", self.kind)
        })
    }

    /// Finalizes the descriptor; the library validates the attributes.
    pub fn finalize(self) -> Result<Descriptor, DriverError> {
        let library = self.descriptor.library;
        // SAFETY: the descriptor is not finalized yet.
        let status = unsafe { (library.cudnnBackendFinalize)(self.descriptor.raw) };
        check_status(library, status, "cudnnBackendFinalize", || format!("{:?}", self.kind))?;
        Ok(self.descriptor)
    }
}

impl Descriptor {
    fn empty(kind: Kind) -> Result<Descriptor, DriverError> {
        let (library, mut raw) = (library()?, ptr::null_mut());
        // SAFETY: writes the new descriptor to `raw`.
        let status = unsafe { (library.cudnnBackendCreateDescriptor)(kind, &mut raw) };
        check_status(library, status, "cudnnBackendCreateDescriptor", || format!("{kind:?}"))?;
        Ok(Descriptor { library, raw })
    }

    /// Returns the raw pointer for library calls.
    pub fn raw(&self) -> cudnnBackendDescriptor_t {
        self.raw
    }

    /// Returns an integer attribute.
    pub fn integer(&self, name: Name) -> Result<i64, DriverError> {
        let mut value = 0i64;
        // SAFETY: `value` is large enough for the one requested value.
        unsafe { self.get(name, Type::CUDNN_TYPE_INT64, 1, (&raw mut value).cast()) }?;
        Ok(value)
    }

    /// Returns a text attribute.
    pub fn text(&self, name: Name) -> Result<String, DriverError> {
        let kind = Type::CUDNN_TYPE_CHAR;
        // SAFETY: no values are requested, only their number.
        let count = unsafe { self.get(name, kind, 0, ptr::null_mut()) }?;
        let mut bytes = vec![0u8; count];
        // SAFETY: `bytes` is large enough.
        unsafe { self.get(name, kind, count, bytes.as_mut_ptr().cast()) }?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(count);
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// Returns an attribute that is a list of enum values, as numbers: a newer library may have more variants.
    pub fn enumeration(&self, name: Name, kind: Type) -> Result<Vec<u32>, DriverError> {
        const MOST: usize = 64;
        let mut values = vec![0u32; MOST];
        // SAFETY: `values` is large enough; enums are 32 bits wide.
        let count = unsafe { self.get(name, kind, MOST, values.as_mut_ptr().cast()) }?;
        values.truncate(count);
        Ok(values)
    }

    /// Returns an attribute that is a list of up to `most` descriptors.
    pub fn descriptors(
        &self,
        name: Name,
        kind: Kind,
        most: usize,
    ) -> Result<Vec<Descriptor>, DriverError> {
        let mut filled = Vec::new();
        for _ in 0..most {
            filled.push(Descriptor::empty(kind)?);
        }
        let mut raw: Vec<_> = filled.iter().map(|descriptor| descriptor.raw).collect();
        let list = Type::CUDNN_TYPE_BACKEND_DESCRIPTOR;
        // SAFETY: `raw` is large enough, and every descriptor is created; the library fills in the first ones.
        let count = unsafe { self.get(name, list, most, raw.as_mut_ptr().cast()) }?;
        filled.truncate(count);
        Ok(filled)
    }

    /// Reads up to `most` values and returns their number.
    ///
    /// # Safety
    /// `values` has space for `most` values of type `kind`.
    unsafe fn get(
        &self,
        name: Name,
        kind: Type,
        most: usize,
        values: *mut c_void,
    ) -> Result<usize, DriverError> {
        let (library, mut count) = (self.library, 0i64);
        // SAFETY: as the caller promises.
        let status = unsafe {
            (library.cudnnBackendGetAttribute)(
                self.raw,
                name,
                kind,
                most as i64,
                &mut count,
                values,
            )
        };
        check_status(library, status, "cudnnBackendGetAttribute", || format!("{name:?}"))?;
        Ok(count as usize)
    }
}

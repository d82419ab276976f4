//! Kernels from CUDA C++ source, written by users of the library, and their launches.

use std::fmt;
use std::sync::OnceLock;

use super::Backend;
use crate::{DType, View, ViewMut};

/// A kernel of CUDA C++ source, compiled by NVRTC at its first launch on a device and cached, also on disk.
///
/// The source defines the kernel as `KERNEL(name)(..)`, after the library's common header, which has fixed-width
/// integers, `bf16` with `widen(x)` and `store(&y, value)`, and `thread_index()` and `thread_count()` of a grid-stride
/// loop. Kernels compute in f32 and take addresses as `const T*` to read and `T*` to write, with `T` one of `float`,
/// `bf16` and `uint32_t`; a scalar is a `float`, `int32_t`, `uint32_t` or `uint64_t`.
///
/// ```
/// use meshwright::backend::CudaKernel;
///
/// static DOUBLE: CudaKernel = CudaKernel::new(
///     "double_f32",
///     "KERNEL(double_f32)(const float* x, float* y, uint64_t len) {\n\
///          for (uint64_t i = thread_index(); i < len; i += thread_count()) y[i] = 2.0f * x[i];\n\
///      }",
/// );
/// ```
pub struct CudaKernel {
    name: &'static str,
    source: &'static str,
    params: OnceLock<Result<Vec<KernelParam>, String>>,
}

/// Dimensions of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchGrid {
    /// Number of blocks along x, y and z.
    pub blocks: [u32; 3],
    /// Threads per block, along x only.
    pub threads: u32,
    /// Dynamic shared memory per block, in bytes.
    pub shared: u32,
}

/// An argument of a kernel, in the order of its parameters.
pub enum KernelArg<'a> {
    /// Elements to read, for a `const T*`.
    Read(View<'a>),
    /// Elements to write, for a `T*`.
    Write(ViewMut<'a>),
    /// A `float`.
    F32(f32),
    /// An `int32_t`.
    I32(i32),
    /// A `uint32_t`.
    U32(u32),
    /// A `uint64_t`, as a number of elements is.
    U64(u64),
}

/// A parameter in a kernel's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KernelParam {
    Read(DType),
    Write(DType),
    F32,
    I32,
    U32,
    U64,
}

impl CudaKernel {
    /// Creates the kernel `name` of `source`. Nothing is compiled before its first launch.
    pub const fn new(name: &'static str, source: &'static str) -> CudaKernel {
        CudaKernel { name, source, params: OnceLock::new() }
    }

    /// Returns the name of the kernel.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the source without the common header.
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// Launches the kernel on the compute stream of `backend`, and returns before it is done. The stream orders it
    /// after all kernels before it; it can be captured in a CUDA graph.
    ///
    /// # Safety
    /// The kernel accesses elements of its arguments only, and writes only elements of [`KernelArg::Write`]; other
    /// memory of the device belongs to others. Its threads do not race.
    ///
    /// # Panics
    /// If the arguments do not have the number, kinds and dtypes of the kernel's parameters, if they are not in memory
    /// of the device, if the source does not compile, or if the backend has no CUDA device. Before any of it runs.
    #[track_caller]
    pub unsafe fn launch(&self, backend: &dyn Backend, grid: LaunchGrid, args: &[KernelArg<'_>]) {
        self.check_args(args);
        // SAFETY: the arguments have the types of the kernel's parameters; the rest is as the caller promises.
        unsafe { backend.launch_cuda_kernel(self, grid, args) };
    }

    #[track_caller]
    fn check_args(&self, args: &[KernelArg<'_>]) {
        let name = self.name;
        let params = match self.params.get_or_init(|| parse_params(name, self.source)) {
            Ok(params) => params,
            Err(reason) => panic!("CUDA kernel `{name}`: {reason}"),
        };
        assert!(
            params.len() == args.len(),
            "CUDA kernel `{name}` takes {} arguments, but is launched with {}",
            params.len(),
            args.len()
        );
        for (index, (param, arg)) in params.iter().zip(args).enumerate() {
            assert!(
                *param == arg.param(),
                "CUDA kernel `{name}` takes `{param}` as argument {index}, but is launched with `{}`",
                arg.param()
            );
        }
        for (index, arg) in args.iter().enumerate() {
            assert!(
                arg.is_scalar() || arg.is_on_device(),
                "CUDA kernel `{name}` is launched with argument {index} in memory of the host"
            );
        }
    }
}

impl LaunchGrid {
    /// Threads per block of [`over`](Self::over).
    pub const THREADS: u32 = 256;

    /// Returns the grid of a grid-stride loop over `items` items: enough blocks for one thread each, up to 65535.
    pub fn over(items: usize) -> LaunchGrid {
        let blocks = items.div_ceil(LaunchGrid::THREADS as usize).min(65535);
        LaunchGrid { blocks: [blocks as u32, 1, 1], threads: LaunchGrid::THREADS, shared: 0 }
    }
}

impl KernelArg<'_> {
    fn param(&self) -> KernelParam {
        match self {
            KernelArg::Read(view) => KernelParam::Read(view.dtype()),
            KernelArg::Write(view) => KernelParam::Write(view.dtype()),
            KernelArg::F32(_) => KernelParam::F32,
            KernelArg::I32(_) => KernelParam::I32,
            KernelArg::U32(_) => KernelParam::U32,
            KernelArg::U64(_) => KernelParam::U64,
        }
    }

    fn is_scalar(&self) -> bool {
        !matches!(self, KernelArg::Read(_) | KernelArg::Write(_))
    }

    fn is_on_device(&self) -> bool {
        match self {
            KernelArg::Read(view) => view.device().is_some(),
            KernelArg::Write(view) => view.as_view().device().is_some(),
            _ => false,
        }
    }
}

macro_rules! kernel_args {
    ($($arg:ty: $kind:ident;)*) => {$(
        impl<'a> From<$arg> for KernelArg<'a> {
            fn from(arg: $arg) -> KernelArg<'a> {
                KernelArg::$kind(arg)
            }
        }
    )*};
}

kernel_args! { View<'a>: Read; ViewMut<'a>: Write; f32: F32; i32: I32; u32: U32; u64: U64; }

/// A number of elements, for a `uint64_t`.
impl From<usize> for KernelArg<'_> {
    fn from(len: usize) -> Self {
        KernelArg::U64(len as u64)
    }
}

impl fmt::Debug for CudaKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaKernel({})", self.name)
    }
}

impl fmt::Debug for KernelArg<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KernelArg({})", self.param())
    }
}

/// Formats a parameter as in CUDA C++: `const float*`.
impl fmt::Display for KernelParam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let element = |dtype: &DType| match dtype {
            DType::F32 => "float",
            DType::Bf16 => "bf16",
            DType::U32 => "uint32_t",
            DType::F64 => "double",
        };
        match self {
            KernelParam::Read(dtype) => write!(f, "const {}*", element(dtype)),
            KernelParam::Write(dtype) => write!(f, "{}*", element(dtype)),
            KernelParam::F32 => f.write_str("float"),
            KernelParam::I32 => f.write_str("int32_t"),
            KernelParam::U32 => f.write_str("uint32_t"),
            KernelParam::U64 => f.write_str("uint64_t"),
        }
    }
}

/// Returns the parameters of kernel `name` of a source.
///
/// # Errors
/// If the source does not define it as `KERNEL(name)(..)`, or a parameter has another type than kernels may take.
fn parse_params(name: &str, source: &str) -> Result<Vec<KernelParam>, String> {
    let head = format!("KERNEL({name})(");
    let list = source
        .split_once(&head)
        .and_then(|(_, rest)| rest.split_once(')'))
        .map(|(list, _)| list)
        .ok_or_else(|| format!("its source does not define it: write `{head}..)`"))?;
    list.split(',').map(str::trim).filter(|param| !param.is_empty()).map(parse_param).collect()
}

/// Parses a declaration such as `const float* __restrict__ x`.
fn parse_param(text: &str) -> Result<KernelParam, String> {
    let (pointee, is_pointer) = match text.split_once('*') {
        Some((pointee, _)) => (pointee, true),
        None => (text, false),
    };
    let words: Vec<&str> = pointee.split_whitespace().collect();
    let is_const = words.contains(&"const");
    let kind = words.into_iter().find(|word| *word != "const").unwrap_or_default();
    let param =
        match (is_pointer, kind) {
            (false, "float") => Some(KernelParam::F32),
            (false, "int32_t" | "int") => Some(KernelParam::I32),
            (false, "uint32_t" | "unsigned") => Some(KernelParam::U32),
            (false, "uint64_t") => Some(KernelParam::U64),
            (false, _) => None,
            (true, kind) => {
                let dtype = match kind {
                    "float" => Some(DType::F32),
                    "bf16" => Some(DType::Bf16),
                    "uint32_t" => Some(DType::U32),
                    _ => None,
                };
                dtype.map(|dtype| {
                    if is_const { KernelParam::Read(dtype) } else { KernelParam::Write(dtype) }
                })
            }
        };
    param.ok_or_else(|| {
        format!(
            "its parameter `{text}` is neither a pointer to `float`, `bf16` or `uint32_t` nor a `float`, `int32_t`, \
             `uint32_t` or `uint64_t`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_parsed_from_the_source() {
        let source = "__device__ float twice(float x) { return 2 * x; }\n\
                      KERNEL(scale)(const float* __restrict__ x, bf16 *y,\n    const uint32_t* ids, float by, uint64_t \
                      n) {}";
        let expected = [
            KernelParam::Read(DType::F32),
            KernelParam::Write(DType::Bf16),
            KernelParam::Read(DType::U32),
            KernelParam::F32,
            KernelParam::U64,
        ];
        assert_eq!(parse_params("scale", source).as_deref(), Ok(&expected[..]));
        assert_eq!(parse_params("none", "KERNEL(none)() {}"), Ok(Vec::new()));
        let missing = parse_params("scal", source).unwrap_err();
        assert_eq!(missing, "its source does not define it: write `KERNEL(scal)(..)`");
        let unknown = parse_params("f", "KERNEL(f)(double x) {}").unwrap_err();
        assert!(unknown.starts_with("its parameter `double x` is neither"), "{unknown}");
    }

    #[test]
    fn arguments_are_checked() {
        let kernel = CudaKernel::new("f", "KERNEL(f)(const float* x, float y) {}");
        let message = |args: &[KernelArg<'_>]| {
            let check = std::panic::AssertUnwindSafe(|| kernel.check_args(args));
            let payload = std::panic::catch_unwind(check).expect_err("the arguments are refused");
            payload.downcast_ref::<String>().expect("a message").clone()
        };
        let x = [1.0f32];
        let view = || View::from(&x[..]).into();
        assert!(message(&[1.0f32.into()]).contains("takes 2 arguments, but is launched with 1"));
        let other = message(&[view(), 1u32.into()]);
        assert!(other.contains("takes `float` as argument 1, but is launched with `uint32_t`"));
        assert!(message(&[view(), 1.0f32.into()]).contains("argument 0 in memory of the host"));
    }
}

//! The vendor's libraries: names, files and minimum versions.

use std::fmt;

/// A library that is loaded at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VendorLibrary {
    /// The CUDA driver, which is part of the system.
    Driver,
    /// The run-time compiler of kernels.
    Nvrtc,
    /// Matmuls.
    CublasLt,
    /// Fused operations such as attention.
    Cudnn,
    /// Collectives.
    Nccl,
}

/// A version; parts that a library does not report are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Incompatible changes.
    pub major: u32,
    /// Additions.
    pub minor: u32,
    /// Corrections.
    pub patch: u32,
}

impl VendorLibrary {
    /// All libraries.
    pub const ALL: [VendorLibrary; 5] = [
        VendorLibrary::Driver,
        VendorLibrary::Nvrtc,
        VendorLibrary::CublasLt,
        VendorLibrary::Cudnn,
        VendorLibrary::Nccl,
    ];

    /// Returns the name for messages.
    pub const fn name(self) -> &'static str {
        match self {
            VendorLibrary::Driver => "the CUDA driver",
            VendorLibrary::Nvrtc => "NVRTC",
            VendorLibrary::CublasLt => "cuBLASLt",
            VendorLibrary::Cudnn => "cuDNN",
            VendorLibrary::Nccl => "NCCL",
        }
    }

    /// Returns the file names, best first.
    pub const fn files(self) -> &'static [&'static str] {
        match self {
            VendorLibrary::Driver => &["libcuda.so.1", "libcuda.so"],
            VendorLibrary::Nvrtc => &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
            VendorLibrary::CublasLt => {
                &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"]
            }
            VendorLibrary::Cudnn => &["libcudnn.so.9", "libcudnn.so"],
            VendorLibrary::Nccl => &["libnccl.so.2", "libnccl.so"],
        }
    }

    /// Returns the minimum version.
    ///
    /// CUDA 12.8 is the first with compute capability 10.0. cuDNN 9.15.1 is the first whose attention backward supports
    /// lengths that are not a multiple of 128, and does not have the forward defects of 9.10. NCCL 2.27 is the oldest
    /// that declares every function as used here.
    pub const fn minimum(self) -> Version {
        match self {
            VendorLibrary::Driver | VendorLibrary::Nvrtc | VendorLibrary::CublasLt => {
                Version::new(12, 8, 0)
            }
            VendorLibrary::Cudnn => Version::new(9, 15, 1),
            VendorLibrary::Nccl => Version::new(2, 27, 0),
        }
    }

    /// Returns the name of one exported function, used to find the library's file.
    pub const fn function(self) -> &'static str {
        match self {
            VendorLibrary::Driver => "cuDriverGetVersion",
            VendorLibrary::Nvrtc => "nvrtcVersion",
            VendorLibrary::CublasLt => "cublasLtGetVersion",
            VendorLibrary::Cudnn => "cudnnGetVersion",
            VendorLibrary::Nccl => "ncclGetVersion",
        }
    }
}

impl Version {
    /// Creates a version from its parts.
    pub const fn new(major: i32, minor: i32, patch: i32) -> Version {
        Version { major: major as u32, minor: minor as u32, patch: patch as u32 }
    }

    /// Creates a version from one number with two decimal digits per part except the first.
    pub const fn of_decimals(number: u64) -> Version {
        Version::new((number / 10_000) as i32, (number / 100 % 100) as i32, (number % 100) as i32)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch > 0 { write!(f, ".{}", self.patch) } else { Ok(()) }
    }
}

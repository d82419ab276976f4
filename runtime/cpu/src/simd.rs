//! Dispatch over instruction sets: a kernel body is compiled for each of them, and one is chosen at run time.
//!
//! Bodies are ordinary loops that the compiler vectorizes.

use std::cell::Cell;
use std::sync::OnceLock;

/// Instruction sets that kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// The baseline of the target.
    Portable,
    /// 256-bit vectors with fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 512-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// 512-bit vectors with dot products of pairs of bf16, which only matmuls use.
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
}

/// True if the baseline of the target has a fused multiply-add.
pub(super) const BASELINE_FUSES: bool = cfg!(target_arch = "aarch64");

/// The environment variable that limits the instruction set of kernels.
pub(super) const LIMIT_VARIABLE: &str = "MESHWRIGHT_MAX_CPU_ISA";

impl Level {
    /// Returns the level that kernels use: the best of this CPU, or the limit in the environment if that is lower.
    #[inline]
    pub fn detect() -> Level {
        if let Some(level) = FORCED.get() {
            return level;
        }
        static LEVEL: OnceLock<Level> = OnceLock::new();
        *LEVEL.get_or_init(|| {
            // An invalid name was rejected when the backend was created.
            let limit = Level::limit().ok().flatten();
            limit.map_or(Level::of_cpu(), |limit| limit.min(Level::of_cpu()))
        })
    }

    /// Returns the limit set in the environment.
    ///
    /// # Errors
    /// When it names no instruction set; the message lists the valid names.
    pub fn limit() -> Result<Option<Level>, String> {
        let Some(value) = std::env::var_os(LIMIT_VARIABLE).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        let level = value.to_str().and_then(Level::by_name);
        level.map(Some).ok_or_else(|| {
            let names: Vec<&str> = Level::NAMES.iter().map(|(name, _)| *name).collect();
            format!(
                "{LIMIT_VARIABLE}={}: not an instruction set; choose one of {}, or unset it",
                value.display(),
                names.join(", ")
            )
        })
    }

    const NAMES: &[(&str, Level)] = &[
        ("portable", Level::Portable),
        #[cfg(target_arch = "x86_64")]
        ("avx2", Level::Avx2),
        #[cfg(target_arch = "x86_64")]
        ("avx512", Level::Avx512),
        #[cfg(target_arch = "x86_64")]
        ("avx512bf16", Level::Avx512Bf16),
    ];

    fn by_name(name: &str) -> Option<Level> {
        Level::NAMES.iter().find(|(known, _)| *known == name).map(|(_, level)| *level)
    }

    fn of_cpu() -> Level {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("fma")
            {
                let has_bf16 = is_x86_feature_detected!("avx512bf16");
                return if has_bf16 { Level::Avx512Bf16 } else { Level::Avx512 };
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Level::Avx2;
            }
        }
        Level::Portable
    }
}

/// Returns true if kernels add products without rounding them first. Ranks that differ in this compute copies with
/// other bits.
pub fn fuses_products() -> bool {
    BASELINE_FUSES || Level::detect() > Level::Portable
}

/// Requests the line at any address for the cache of level `LEVEL`, 1 or 2, if there is an instruction for it.
#[inline(always)]
pub(super) fn prefetch<const LEVEL: usize>(address: *const i8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        // SAFETY: all x86-64 CPUs can prefetch, and any address may be given.
        unsafe {
            if LEVEL == 1 {
                _mm_prefetch::<_MM_HINT_T0>(address);
            } else {
                _mm_prefetch::<_MM_HINT_T1>(address);
            }
        }
    }
    let _ = address;
}

/// Defines a function whose body is compiled once per [`Level`].
///
/// The constant named first in the brackets is true in the body if fused multiply-add is one instruction; type
/// parameters may follow it.
macro_rules! dispatch {
    ($(#[$meta:meta])* $vis:vis fn $name:ident<const $fma:ident: bool $(, $t:ident: $bound:ident)*>(
        $($arg:ident: $ty:ty),* $(,)?
    ) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name<$($t: $bound),*>($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body<const $fma: bool $(, $t: $bound)*>($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2<$($t: $bound),*>($($arg: $ty),*) $(-> $ret)? {
                body::<true $(, $t)*>($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            fn avx512<$($t: $bound),*>($($arg: $ty),*) $(-> $ret)? {
                body::<true $(, $t)*>($($arg),*)
            }

            use $crate::simd::Level;
            match Level::detect() {
                // SAFETY: the CPU has these features, as `detect` found.
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 | Level::Avx512Bf16 => unsafe { avx512::<$($t),*>($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => unsafe { avx2::<$($t),*>($($arg),*) },
                Level::Portable => body::<{ $crate::simd::BASELINE_FUSES } $(, $t)*>($($arg),*),
            }
        }
    };
}
pub(super) use dispatch;

thread_local! {
    /// The instruction set that a test has selected on this thread.
    static FORCED: Cell<Option<Level>> = const { Cell::new(None) };
}

/// Runs `test` at every instruction set of this CPU (on this thread only).
pub fn at_every_isa(test: impl Fn()) {
    let best = Level::detect();
    let levels = Level::NAMES.iter().map(|(_, level)| *level).filter(|level| *level <= best);
    for level in levels {
        FORCED.set(Some(level));
        test();
    }
    FORCED.set(None);
}

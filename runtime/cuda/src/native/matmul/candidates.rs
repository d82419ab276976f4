//! Candidate algorithms of a matmul: the heuristic's proposals.

use std::ffi::{c_int, c_void};

use cudarc::cublaslt::sys::{
    cublasLtHandle_t, cublasLtMatmulAlgo_t, cublasLtMatmulAlgoConfigAttributes_t,
    cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, cublasLtReductionScheme_t,
    cublasStatus_t,
};

use super::descriptors::{MatMulDescriptors, call};
use crate::DriverError;
use crate::native::api::{CublasLtApi, Heuristic};

/// A candidate algorithm of a matmul.
#[derive(Debug, Clone, Copy)]
pub struct AlgorithmCandidate {
    pub algorithm: cublasLtMatmulAlgo_t,
    /// Required workspace, in bytes.
    pub workspace: usize,
}

impl AlgorithmCandidate {
    fn from_heuristic(found: &Heuristic) -> AlgorithmCandidate {
        AlgorithmCandidate { algorithm: found.algorithm, workspace: found.workspace }
    }

    /// Returns the configuration by the library's numbers, as far as it reports them.
    pub fn configuration(&self, api: &CublasLtApi) -> String {
        use cublasLtMatmulAlgoConfigAttributes_t::*;
        let setting = |(name, attribute)| {
            let (mut value, mut written) = (0u32, 0);
            let to = (&raw mut value).cast::<c_void>();
            // SAFETY: the library writes at most the given number of bytes.
            let status = unsafe {
                (api.cublasLtMatmulAlgoConfigGetAttribute)(
                    &self.algorithm,
                    attribute,
                    to,
                    size_of_val(&value),
                    &mut written,
                )
            };
            let is_known = api.check_status("cublasLtMatmulAlgoConfigGetAttribute", status).is_ok();
            is_known.then(|| format!("{name} {value}"))
        };
        let configuration = [
            ("algorithm", CUBLASLT_ALGO_CONFIG_ID),
            ("tile", CUBLASLT_ALGO_CONFIG_TILE_ID),
            ("stages", CUBLASLT_ALGO_CONFIG_STAGES_ID),
            ("split-k", CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
        ];
        configuration.into_iter().filter_map(setting).collect::<Vec<_>>().join(" ")
    }
}

impl MatMulDescriptors {
    /// Returns up to `count` algorithms, fastest first by the heuristic's estimate; refused if there is none.
    pub fn candidates(
        &self,
        handle: cublasLtHandle_t,
        workspace: usize,
        alignment: &OperandAlignment,
        count: usize,
    ) -> Result<Vec<AlgorithmCandidate>, DriverError> {
        let api = self.api;
        let preference = HeuristicPreference::new(api, workspace, alignment)?;
        if self.has_narrow_result {
            preference.require_f32_reduction()?;
        }
        let mut found = vec![Heuristic::none(); count];
        let mut returned = 0;
        // SAFETY: the descriptors are complete, and `found` has space for `count` results.
        let status = unsafe {
            (api.cublasLtMatmulAlgoGetHeuristic)(
                handle,
                self.operation,
                self.left,
                self.right,
                self.result,
                self.result,
                preference.raw,
                count as c_int,
                found.as_mut_ptr(),
                &mut returned,
            )
        };
        api.check_status("cublasLtMatmulAlgoGetHeuristic", status)?;
        found.truncate(returned.max(0) as usize);
        found.retain(|found| found.state == cublasStatus_t::CUBLAS_STATUS_SUCCESS);
        if found.is_empty() {
            let (call, reason) =
                ("cublasLtMatmulAlgoGetHeuristic", "no algorithm is known".to_owned());
            return Err(DriverError::Refused { call, reason });
        }
        Ok(found.iter().map(AlgorithmCandidate::from_heuristic).collect())
    }

    /// Validates an algorithm from the autotuning cache against this matmul and workspace size.
    pub fn validate_algorithm(
        &self,
        handle: cublasLtHandle_t,
        workspace: usize,
        algorithm: cublasLtMatmulAlgo_t,
    ) -> Option<AlgorithmCandidate> {
        let api = self.api;
        let mut found = Heuristic::none();
        // SAFETY: the descriptors are complete; the library only reads the algorithm.
        let status = unsafe {
            (api.cublasLtMatmulAlgoCheck)(
                handle,
                self.operation,
                self.left,
                self.right,
                self.result,
                self.result,
                &algorithm,
                &mut found,
            )
        };
        let is_taken = api.check_status("cublasLtMatmulAlgoCheck", status).is_ok()
            && found.workspace <= workspace;
        is_taken.then_some(AlgorithmCandidate { algorithm, workspace: found.workspace })
    }
}

/// Alignment of the operands' addresses, in bytes: left, right, result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OperandAlignment(pub [u32; 3]);

impl OperandAlignment {
    /// Largest alignment that any algorithm requires.
    const MAX: u32 = 16;

    /// Returns the alignment of these addresses.
    pub fn of_addresses(addresses: [u64; 3]) -> OperandAlignment {
        OperandAlignment(
            addresses
                .map(|address| 1 << address.trailing_zeros().min(OperandAlignment::MAX.ilog2())),
        )
    }
}

/// Restrictions on the algorithms of a search.
struct HeuristicPreference {
    api: &'static CublasLtApi,
    raw: cublasLtMatmulPreference_t,
}

impl HeuristicPreference {
    fn new(
        api: &'static CublasLtApi,
        workspace: usize,
        alignment: &OperandAlignment,
    ) -> Result<HeuristicPreference, DriverError> {
        use cublasLtMatmulPreferenceAttributes_t::*;
        let mut preference = HeuristicPreference { api, raw: std::ptr::null_mut() };
        // SAFETY: sets the pointer.
        unsafe { call!(api, cublasLtMatmulPreferenceCreate(&mut preference.raw)) }?;
        let workspace = workspace as u64;
        preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace)?;
        let [left, right, result] = &alignment.0;
        preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, left)?;
        preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, right)?;
        preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, result)?;
        preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, result)?;
        Ok(preference)
    }

    /// Excludes algorithms that reduce split-k partial sums in the dtype of the result, which rounds each time.
    fn require_f32_reduction(&self) -> Result<(), DriverError> {
        let schemes = cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        use cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK;
        self.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes)
    }

    fn set<T>(
        &self,
        attribute: cublasLtMatmulPreferenceAttributes_t,
        value: &T,
    ) -> Result<(), DriverError> {
        let from = std::ptr::from_ref(value).cast::<c_void>();
        let (api, raw) = (self.api, self.raw);
        // SAFETY: the library compares the number of bytes with its own, and copies the value.
        unsafe {
            call!(api, cublasLtMatmulPreferenceSetAttribute(raw, attribute, from, size_of::<T>()))
        }
    }
}

impl Drop for HeuristicPreference {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: created, and not used any more.
            unsafe { (self.api.cublasLtMatmulPreferenceDestroy)(self.raw) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::api::cublaslt;

    #[test]
    fn alignment_is_a_power_of_two() {
        assert_eq!(OperandAlignment::of_addresses([256, 2, 4]).0, [16, 2, 4]);
        assert_eq!(OperandAlignment::of_addresses([24, 1 << 40, 18]).0, [8, 16, 2]);
    }

    /// Needs the library but no device; checks nothing without the library.
    #[test]
    fn preferences_are_accepted_by_the_library() {
        let Ok(api) = cublaslt() else { return };
        let preference =
            HeuristicPreference::new(api, 32 << 20, &OperandAlignment([16, 2, 4])).unwrap();
        preference.require_f32_reduction().unwrap();

        let wrong = HeuristicPreference::new(api, 0, &OperandAlignment([16; 3])).unwrap();
        let search = cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_SEARCH_MODE;
        let error = wrong.set(search, &0u8).unwrap_err().to_string();
        assert!(error.starts_with("cublasLtMatmulPreferenceSetAttribute refuses: "), "{error}");
    }
}

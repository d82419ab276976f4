//! The GPU of a process.

/// The environment variable of the driver with the GPUs that a process sees.
pub const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
/// The environment variable that allows processes to share GPUs if set to 1.
pub const SHARE: &str = "MESHWRIGHT_SHARE_GPUS";

/// Returns the ordinal of the GPU of a process, of `count` that it sees. `is_chosen` is set if [`VISIBLE`] restricts
/// them, and `shares` if processes may share GPUs.
///
/// A launcher may show every process a GPU of its own, which has ordinal 0 there; otherwise the ordinal is the local
/// rank. More processes than GPUs are refused as a mistake, unless sharing is allowed.
pub fn choose_gpu(
    local_rank: usize,
    count: usize,
    is_chosen: bool,
    shares: bool,
) -> Result<usize, String> {
    match (local_rank, count) {
        (_, 0) => Err("there is no GPU".into()),
        _ if local_rank < count => Ok(local_rank),
        _ if shares => Ok(local_rank % count),
        (_, 1) if is_chosen => Ok(0),
        _ => Err(format!(
            "process {local_rank} of this host (counted from 0) has no GPU of its own (visible GPUs: {count}); start \
             at most one process per GPU, or share GPUs with {SHARE}=1, which is slow and meant for tests"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_share_gpus_only_if_allowed() {
        assert_eq!(choose_gpu(3, 8, false, false), Ok(3));
        assert_eq!(choose_gpu(1, 2, true, false), Ok(1));
        // As `srun --gpus-per-task 1` does it.
        assert_eq!(choose_gpu(3, 1, true, false), Ok(0));
        assert_eq!(choose_gpu(3, 1, false, true), Ok(0));
        assert_eq!(choose_gpu(5, 4, false, true), Ok(1));
        let refused = |is_chosen| choose_gpu(2, 2, is_chosen, false).unwrap_err();
        assert!(refused(false).contains("process 2 of this host (counted from 0) has no GPU"));
        assert!(refused(true).contains("MESHWRIGHT_SHARE_GPUS=1"));
        assert!(choose_gpu(1, 1, false, false).unwrap_err().contains("(visible GPUs: 1);"));
        assert_eq!(choose_gpu(0, 0, false, true), Err("there is no GPU".into()));
    }
}

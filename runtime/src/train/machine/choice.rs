//! Which GPU of its host a process takes.

/// The GPUs that a process sees, by the driver's own rules.
pub const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
/// Set to 1, lets processes share GPUs.
pub const SHARE: &str = "MESHWRIGHT_SHARE_GPUS";

/// The number of the GPU, of `count` that the process sees, of the process with this number on its host; `is_chosen`
/// where it was said which GPUs it sees, and `shares` where processes may share them.
///
/// A launcher may show every process one GPU of its own, which has number 0 there; else it is the one with the number of the
/// process. More processes than GPUs are taken for a mistake, unless it is said that they are to share.
pub fn ordinal(
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
            "process {local_rank} of this host (counted from 0) has no GPU of its own: the host shows {count}; start at most \
             {count} processes here, or let them share GPUs with {SHARE}=1, which is slow, and made for tests"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_a_gpu_of_its_own_unless_it_is_to_share() {
        assert_eq!(ordinal(3, 8, false, false), Ok(3));
        assert_eq!(ordinal(1, 2, true, false), Ok(1));
        // As `srun --gpus-per-task 1` does it.
        assert_eq!(ordinal(3, 1, true, false), Ok(0));
        assert_eq!(ordinal(3, 1, false, true), Ok(0));
        assert_eq!(ordinal(5, 4, false, true), Ok(1));
        let refused = |is_chosen| ordinal(2, 2, is_chosen, false).unwrap_err();
        assert!(refused(false).contains("process 2 of this host (counted from 0) has no GPU"));
        assert!(refused(true).contains("MESHWRIGHT_SHARE_GPUS=1"));
        assert!(ordinal(1, 1, false, false).unwrap_err().contains("shows 1;"));
        assert_eq!(ordinal(0, 0, false, true), Err("there is no GPU".into()));
    }
}

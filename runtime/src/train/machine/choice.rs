//! Which GPU of its host a process takes.

/// The GPUs that a process sees, by the driver's own rules.
pub const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
/// Set to 1, lets processes share GPUs.
pub const SHARE: &str = "MESHWRIGHT_SHARE_GPUS";

/// The number of the GPU, of `count` that the process sees, of the process with this number on its host.
///
/// A launcher may show every process one GPU of its own, which has number 0 there; else it is the one with the number of the
/// process. More processes than GPUs are taken for a mistake, unless it is said that they are to share.
pub fn ordinal(
    local_rank: usize,
    count: usize,
    visible: Option<&str>,
    share: Option<&str>,
) -> Result<usize, String> {
    let shares = match share {
        None | Some("0") => false,
        Some("1") => true,
        Some(other) => return Err(format!("{SHARE}={other} is neither 0 nor 1")),
    };
    match (local_rank, count) {
        (_, 0) => Err("there is no GPU".into()),
        _ if local_rank < count => Ok(local_rank),
        _ if shares => Ok(local_rank % count),
        (_, 1) if visible.is_some() => Ok(0),
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
        assert_eq!(ordinal(3, 8, None, None), Ok(3));
        assert_eq!(ordinal(1, 2, Some("4,5"), Some("0")), Ok(1));
        // As `srun --gpus-per-task 1` does it.
        assert_eq!(ordinal(3, 1, Some("3"), None), Ok(0));
        assert_eq!(ordinal(3, 1, None, Some("1")), Ok(0));
        assert_eq!(ordinal(5, 4, None, Some("1")), Ok(1));
        let refused = |visible| ordinal(2, 2, visible, None).unwrap_err();
        assert!(refused(None).contains("process 2 of this host (counted from 0) has no GPU"));
        assert!(refused(Some("0,1")).contains("MESHWRIGHT_SHARE_GPUS=1"));
        assert!(ordinal(1, 1, None, None).unwrap_err().contains("shows 1;"));
        assert_eq!(
            ordinal(0, 1, None, Some("yes")),
            Err("MESHWRIGHT_SHARE_GPUS=yes is neither 0 nor 1".into())
        );
        assert_eq!(ordinal(0, 0, None, None), Err("there is no GPU".into()));
    }
}

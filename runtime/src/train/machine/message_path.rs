//! The path of messages between pipeline stages over NCCL, as the environment sets it.

use std::env;

use crate::comm::nccl::MessagePath;
use crate::launch::{RankAssignment, Store, StoreError};
use crate::layout::{AxisId, AxisSet};
use crate::mesh::MeshShape;
use meshwright_cuda::native::HARDWARE_QUEUES;

/// The environment variable with the path of messages.
const MESSAGES: &str = "MESHWRIGHT_NCCL_P2P";

/// NCCL's environment variable that makes communicators share resources, and their calls run one after another, if
/// positive.
const SHARE_RESOURCES: &str = "NCCL_COMM_SPLIT_SHARE_RESOURCES";

/// Minimum number of hardware queues: streams that share one wait for each other. The driver's default.
const LEAST_QUEUES: i64 = 8;

/// Returns the message path that the environment sets.
///
/// # Errors
/// An unknown path, and for a mesh with pipeline stages, settings that make messages wait for each other.
pub fn message_path(mesh: &MeshShape) -> Result<MessagePath, String> {
    let path = match env::var(MESSAGES) {
        Err(env::VarError::NotPresent) => MessagePath::default(),
        Ok(text) if text.is_empty() => MessagePath::default(),
        Ok(text) => text.parse().map_err(|error| format!("{MESSAGES}: {error}"))?,
        Err(error) => return Err(format!("{MESSAGES}: {error}")),
    };
    let is_pipeline = mesh.degree_of(AxisSet::of(AxisId::Pp)) > 1;
    if is_pipeline && path == MessagePath::PerPair {
        require_independence(|name| env::var(name).ok())?;
    }
    Ok(path)
}

/// Checks that messages do not wait for each other: a receive that waits would hold up the send that its sender needs,
/// and all ranks would wait forever.
fn require_independence(variable: impl Fn(&str) -> Option<String>) -> Result<(), String> {
    for (name, refused) in [(SHARE_RESOURCES, 1..i64::MAX), (HARDWARE_QUEUES, 1..LEAST_QUEUES)] {
        let number = variable(name).and_then(|text| text.trim().parse().ok());
        if let Some(value) = number.filter(|number| refused.contains(number)) {
            return Err(format!(
                "with {name}={value} and {MESSAGES}=pairs, messages between pipeline stages wait for each other, and \
                 the run would hang: unset one of them"
            ));
        }
    }
    Ok(())
}

/// Checks that all processes send messages on the same path; otherwise they would wait for each other forever.
pub fn require_one_message_path(
    store: &Store,
    assignment: &RankAssignment,
    own: MessagePath,
) -> Result<(), String> {
    let failed = |error: StoreError| error.to_string();
    let key = |rank: usize| format!("message path of rank {rank}");
    store.set(&key(assignment.rank), own.to_string().as_bytes()).map_err(failed)?;
    let paths = (0..assignment.world).map(|rank| store.get(&key(rank)).map_err(failed));
    let paths: Vec<Vec<u8>> = paths.collect::<Result<_, _>>()?;
    let Some(rank) = paths.iter().position(|path| *path != paths[0]) else { return Ok(()) };
    // Rank 0 serves the store, so it ends after the others have read all of them. It may end before it replies, and the
    // error below is the one to report.
    let key = |rank: usize| format!("rank {rank} has another message path");
    let _ = store.set(&key(assignment.rank), &[]);
    if assignment.rank == 0 {
        let _ = (1..assignment.world).try_for_each(|rank| store.get(&key(rank)).map(drop));
    }
    let [first, other] = [0, rank].map(|rank| String::from_utf8_lossy(&paths[rank]));
    Err(format!(
        "{MESSAGES} is `{first}` on rank 0, but `{other}` on rank {rank}; set the same on all hosts"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_make_messages_wait_for_each_other_are_refused() {
        let with = |name: &'static str, value: &'static str| {
            require_independence(move |asked| (asked == name).then(|| value.to_owned()))
        };
        for (name, value) in
            [(SHARE_RESOURCES, "1"), (HARDWARE_QUEUES, "1"), (HARDWARE_QUEUES, " 7")]
        {
            let message = with(name, value).unwrap_err();
            let both =
                format!("with {name}={} and MESHWRIGHT_NCCL_P2P=pairs, messages ", value.trim());
            assert!(message.starts_with(&both), "{message}");
        }
        for (name, value) in
            [("PATH", "1"), (SHARE_RESOURCES, "0"), (HARDWARE_QUEUES, "8"), (HARDWARE_QUEUES, "")]
        {
            assert_eq!(with(name, value), Ok(()), "{name}={value}");
        }
    }
}

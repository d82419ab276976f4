//! Schedules as CSV files in PyTorch's notation: a row per rank, an action per cell, empty cells for idle time.
//!
//! `2F0` is the forward pass of stage 2 on micro-batch 0; `B`, `I` and `W` are the whole backward pass and its parts
//! for the input and for weights. A file with messages (`2SEND_F0`, `3RECV_F0`, named after the sending and the
//! receiving stage) is taken as complete; else they are added by [`lower_schedule`](super::lower_schedule). PyTorch's
//! waits for the end of a send or a gradient reduction (`2WAIT_SEND_F0`, `2WAIT_REDUCE_GRAD`) are skipped: the executor
//! has its own.

use std::fmt::Write;

use super::{Action, ParseActionError, Schedule};

/// A CSV file that holds no schedule. Ranks and actions are counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CsvError {
    /// A cell that is no action.
    #[error("rank {rank}, action {action}: {error}")]
    Action {
        /// The rank, which is the row.
        rank: usize,
        /// The number of the action in its row; empty cells and waits are not counted.
        action: usize,
        /// The cell's fault.
        error: ParseActionError,
    },
    /// A file without actions.
    #[error("the file holds no actions: a schedule has a row per rank, such as `0F0,0F1,0B0,0B1`")]
    Empty,
    /// A stage that is computed on two ranks.
    #[error("rank {rank}, action {action}, `{cell}`: stage {stage} is on rank {first}, too")]
    TwoRanks {
        /// The second rank with the stage.
        rank: usize,
        /// The number of the action in its row.
        action: usize,
        /// The action.
        cell: String,
        /// The stage.
        stage: usize,
        /// The first rank with the stage.
        first: usize,
    },
    /// A stage that no rank computes, though a later one is computed.
    #[error("stage {stage} has no forward pass, though there is a stage {last}")]
    NoForward {
        /// The stage.
        stage: usize,
        /// The last stage.
        last: usize,
    },
}

/// Reads a schedule, whose stages are on the ranks that compute their forward passes.
///
/// # Errors
/// If a cell is not an action, or the forward passes do not place every stage on one rank.
pub fn read(text: &str) -> Result<Schedule, CsvError> {
    let mut ranks = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let rank = ranks.len();
        let cells = line.split(',').map(|cell| cell.trim().trim_matches('"'));
        let cells = cells.filter(|cell| !cell.is_empty() && !is_wait(cell));
        let parsed = cells.enumerate().map(|(action, cell)| {
            cell.parse().map_err(|error| CsvError::Action { rank, action, error })
        });
        ranks.push(parsed.collect::<Result<Vec<Action>, CsvError>>()?);
    }
    let computes = || ranks.iter().flatten().flat_map(|action| action.computes());
    let (Some(last), Some(last_batch)) = (
        computes().map(|compute| compute.stage).max(),
        computes().map(|compute| compute.micro_batch).max(),
    ) else {
        return Err(CsvError::Empty);
    };
    let placement = stage_placement(&ranks, last)?;
    Ok(Schedule { ranks, placement, micro_batches: last_batch.saturating_add(1), kind: None })
}

/// Returns true for a wait of PyTorch's lowered schedules.
fn is_wait(cell: &str) -> bool {
    let is_digit = |byte: char| byte.is_ascii_digit();
    let name = cell.trim_start_matches(is_digit);
    let micro_batch =
        ["WAIT_SEND_F", "WAIT_SEND_B"].iter().find_map(|wait| name.strip_prefix(wait));
    let is_known = match micro_batch {
        Some(number) => !number.is_empty() && number.chars().all(is_digit),
        None => name == "WAIT_REDUCE_GRAD",
    };
    is_known && name.len() < cell.len()
}

/// The rank of each stage up to `last`.
fn stage_placement(ranks: &[Vec<Action>], last: usize) -> Result<Vec<usize>, CsvError> {
    let mut found: std::collections::BTreeMap<usize, usize> = Default::default();
    for (rank, actions) in ranks.iter().enumerate() {
        for (action, cell) in actions.iter().enumerate() {
            let forward = |compute: &&super::Compute| compute.work == super::Work::Forward;
            for compute in cell.computes().iter().filter(forward) {
                let stage = compute.stage;
                let first = *found.entry(stage).or_insert(rank);
                if first != rank {
                    let cell = cell.to_string();
                    return Err(CsvError::TwoRanks { rank, action, cell, stage, first });
                }
            }
        }
    }
    // Not by counting up to `last`, which may be any number.
    let missing = found.keys().zip(0..).find(|(stage, expected)| **stage != *expected);
    match missing {
        Some((_, stage)) => Err(CsvError::NoForward { stage, last }),
        None if found.len() <= last => Err(CsvError::NoForward { stage: found.len(), last }),
        None => Ok(found.into_values().collect()),
    }
}

/// Writes a row of actions per rank.
pub fn write(schedule: &Schedule) -> String {
    let mut text = String::new();
    for actions in &schedule.ranks {
        for (number, action) in actions.iter().enumerate() {
            let separator = if number > 0 { "," } else { "" };
            write!(text, "{separator}{action}").expect("a string takes any text");
        }
        text.push('\n');
    }
    text
}

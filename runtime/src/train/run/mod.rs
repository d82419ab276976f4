//! The run of one rank, from building the model to sampling a continuation.

mod background_save;
mod batch_check;
mod checkpoints;
mod divergence;
mod documents;
mod early_stop;
mod end_cause;
mod evaluate;
mod evaluations;
mod failed_export;
mod failed_save_count;
#[cfg(test)]
mod failed_save_tests;
mod failed_saves;
mod finite_params;
#[cfg(test)]
#[path = "../../../pipeline/src/tests/fixture.rs"]
mod fixture;
mod observe;
#[cfg(test)]
mod observer_tests;
mod rank_loop;
mod recent_saves;
mod record_steps;
#[cfg(test)]
mod replica_tests;
mod replicas;
mod sample;
mod save;
mod shared;
mod skip_count;
#[cfg(test)]
mod skip_tests;
mod skipped_steps;
#[cfg(test)]
mod slow_file_tests;
#[cfg(test)]
mod stage_tests;
mod stage_times;
mod stop;
mod targets;
mod whole_run;

pub use finite_params::find_infinite_param;
pub use rank_loop::{RankLoop, call_all};
pub use save::{exchange_results, save_to_folder};
pub use shared::Shared;
pub use stop::{begin_steps, start_clock};
pub use whole_run::{ObserverFactory, RunEnd};

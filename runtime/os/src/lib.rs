//! The operating system: kinds of files, pipes that are opened without waiting forever, files with one writer, standard
//! output, numbers in messages, signals of the process, its user and exit codes, and supervised child processes.

mod child_processes;
pub mod exit_code;
mod file_kind;
mod input_file;
mod numbers;
mod open_files;
mod output_file;
mod pipes;
mod signals;
mod stdout;
mod user;

pub use child_processes::{
    SignalQueue, adopt_orphans, descendants, is_stop_signal, reap_child, send_signal, signal_name,
};
pub use input_file::read_text;
pub use signals::{
    StopPhase, begin_last_step, begin_stop_phase, count_stoppable_step, explain_report_signal,
    ignore_file_size_signal, requested_stop, take_report_request, watch_report_signal,
    watch_stop_signals,
};
pub use stdout::{finish_stdout, print_text};

pub use file_kind::kind_of_special_file;
pub use input_file::InputFile;
pub use numbers::{counted, counted_with_commas, with_commas};
pub use open_files::{allow_open_files, is_limit_of_open_files};
pub use output_file::{ClaimedFile, free_name, move_aside};
pub use pipes::open_output;
pub use signals::hold_stops;
pub use user::effective_user;

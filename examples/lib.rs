//! Models and optimizers of the examples, also used by tests and benchmarks.

pub mod gated_norm;
pub mod lion;
pub mod long_context;

use meshwright::launch::ProcessRank;
use meshwright::{Error, exit_code};

/// Ends the process with an error if it has arguments, which an example without flags would ignore, or if a launcher
/// has started several processes: each would run all ranks as its threads. The first one prints it.
pub fn refuse_flags_and_processes() {
    let own = ProcessRank::from_environment();
    let is_first = !matches!(&own, Ok(Some(own)) if own.rank > 0);
    let first_argument = std::env::args().nth(1);
    let world = own.map(|own| own.map_or(1, |own| own.world)).map_err(|error| error.to_string());
    match refusal(first_argument.as_deref(), world) {
        Some(message) if is_first => Error::Input(message).exit(),
        Some(_) => std::process::exit(exit_code::REFUSED.into()),
        None => {}
    }
}

/// Returns the problem of an example with an argument, or among the processes of a launcher.
fn refusal(argument: Option<&str>, world: Result<usize, String>) -> Option<String> {
    match (argument, world) {
        (Some(argument), _) => {
            Some(format!("this example takes no arguments, and `{argument}` is one; leave it out"))
        }
        (None, Err(problem)) => Some(problem),
        (None, Ok(1)) => None,
        (None, Ok(world)) => Some(format!(
            "this example runs its ranks as threads, and {world} processes were started, each of which would do the \
             whole work; start one, without a launcher"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_process_without_arguments_is_accepted() {
        assert_eq!(refusal(None, Ok(1)), None);
        let of = |argument, world| refusal(argument, world).unwrap();
        assert!(of(Some("--mesh"), Ok(1)).contains("`--mesh` is one; leave it out"));
        assert!(of(None, Ok(4)).contains("4 processes were started"));
        assert_eq!(of(None, Err("no RANK".into())), "no RANK");
    }
}

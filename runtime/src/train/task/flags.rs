//! The flags of a task and of its program together.

use clap::error::Error;
use clap::{ArgMatches, Args, Command, FromArgMatches};

/// The flags of two structs on one command line.
pub struct BothFlags<A, B>(pub A, pub B);

impl<A: Args, B: Args> Args for BothFlags<A, B> {
    fn augment_args(command: Command) -> Command {
        B::augment_args(A::augment_args(command))
    }

    fn augment_args_for_update(command: Command) -> Command {
        B::augment_args_for_update(A::augment_args_for_update(command))
    }
}

impl<A: FromArgMatches, B: FromArgMatches> FromArgMatches for BothFlags<A, B> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(BothFlags(A::from_arg_matches(matches)?, B::from_arg_matches(matches)?))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)?;
        self.1.update_from_arg_matches(matches)
    }
}

//! Flags of a program besides the settings.

use clap::{Arg, Args, Command};

use super::flags::Flag;
use super::settings::FLAGS;
use super::{ConfigError, Problem};

/// Flags that print a text.
pub const TEXT_FLAGS: [&str; 2] = ["help", "version"];

/// Their heading in `--help`.
const HEADING: &str = "Flags of this program";

/// Flags of a program besides the settings: the fields of a struct.
pub struct OwnFlags {
    /// Long names and aliases.
    names: Vec<String>,
    augment: fn(Command) -> Command,
}

impl OwnFlags {
    /// Reads the flags of `A`.
    ///
    /// # Errors
    /// Each flag that clashes with a setting, and each without a name.
    pub fn of<A: Args>() -> Result<OwnFlags, ConfigError> {
        let command = A::augment_args(Command::new("own"));
        let problems = command.get_arguments().filter_map(find_clash);
        let problems: Vec<Problem> =
            problems.map(|message| Problem { source: None, message }).collect();
        if !problems.is_empty() {
            return Err(ConfigError::Invalid(problems));
        }
        let names = command.get_arguments().flat_map(names_of).collect();
        Ok(OwnFlags { names, augment: A::augment_args })
    }

    /// Adds the flags to those of the settings.
    pub fn add_to(&self, command: Command) -> Command {
        let about = command.get_about().cloned();
        let command = (self.augment)(command.next_help_heading(HEADING));
        // The text of the struct would replace it.
        command.about(about.unwrap_or_default()).long_about(None)
    }

    /// Returns true if a flag has this name.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
    }

    /// Describes a flag that is unknown, with the nearest one of the program or of the settings.
    pub fn describe_unknown(&self, name: &str) -> String {
        let all = self.names.iter().map(String::as_str).chain(FLAGS.iter().map(|flag| flag.name));
        match Flag::nearest(&name.replace('_', "-"), all) {
            Some(near) if self.has(near) => {
                format!("unknown flag `--{name}`; did you mean `--{near}`?")
            }
            _ => Flag::describe_unknown("flag", name, "--"),
        }
    }
}

fn names_of(arg: &Arg) -> Vec<String> {
    let aliases = arg.get_all_aliases().unwrap_or_default();
    arg.get_long().into_iter().chain(aliases).map(str::to_owned).collect()
}

/// Describes why a program cannot have a flag, if it cannot.
fn find_clash(arg: &Arg) -> Option<String> {
    let field = arg.get_id().as_str();
    if arg.is_positional() {
        return Some(format!("the program's field `{field}` is no flag; put #[arg(long)] on it"));
    }
    let is_taken = |name: &str| Flag::find(name).is_some() || TEXT_FLAGS.contains(&name);
    let names = names_of(arg);
    if let Some(name) = names.iter().find(|name| is_taken(name)) {
        return Some(format!(
            "the program's flag --{name} has the name of a flag of the trainer; give it another one"
        ));
    }
    if is_taken(field) {
        return Some(format!(
            "the program's field `{field}` has the name of a flag of the trainer; give it another one"
        ));
    }
    let shorts = arg.get_short().into_iter().chain(arg.get_all_short_aliases().unwrap_or_default());
    let taken = shorts.into_iter().find(|short| ['h', 'V'].contains(short))?;
    Some(format!("the program's flag -{taken} is one of the trainer; give it another one"))
}

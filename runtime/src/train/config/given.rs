//! The settings as given: the command line over a `--config` file, not yet parsed.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::file;
use super::flags::{Flag, FlagKind};
use super::given_value::{GivenMap, GivenValue};
use super::own_flags::{OwnFlags, TEXT_FLAGS};
use super::settings::FLAGS;
use super::{ConfigError, OptimizerEntry, Optimizers, Problem, SettingSource};

/// Reads the command line, with the `own` flags of the program, and the `--config` file that it names.
pub fn read_given(
    args: Vec<OsString>,
    optimizers: &Optimizers,
    own: &OwnFlags,
) -> Result<(GivenMap, ArgMatches), ConfigError> {
    let args = glue_negatives(args);
    let command = own.add_to(command(optimizers));
    let matches = command.try_get_matches_from(&args).map_err(|error| {
        match (error.kind(), unknown_flags(&args, own)) {
            (ErrorKind::UnknownArgument, unknown) if !unknown.is_empty() => {
                ConfigError::Invalid(unknown)
            }
            _ => explain_clap_error(error),
        }
    })?;
    let mut given = GivenMap::new();
    for flag in FLAGS {
        if matches.value_source(flag.name) != Some(clap::parser::ValueSource::CommandLine) {
            continue;
        }
        let text = match flag.kind {
            FlagKind::Switch => OsString::from("true"),
            _ => matches.get_one::<OsString>(flag.name).cloned().unwrap_or_default(),
        };
        given.insert(flag.name, GivenValue { text, source: SettingSource::CommandLine });
    }
    if let Some(path) = given.get("config").map(|given| given.text.clone()) {
        for (name, value) in file::read_file(Path::new(&path), own).map_err(ConfigError::Invalid)? {
            given.entry(name).or_insert(value);
        }
    }
    Ok((given, matches))
}

/// Lists all unknown flags of a command line. Clap stops at the first one.
fn unknown_flags(args: &[OsString], own: &OwnFlags) -> Vec<Problem> {
    let words = args.iter().skip(1).filter_map(|arg| arg.to_str()?.strip_prefix("--"));
    let names = words.map(|word| word.split('=').next().unwrap_or_default());
    let unknown = names.filter(|name| {
        !name.is_empty()
            && Flag::find(name).is_none()
            && !TEXT_FLAGS.contains(name)
            && !own.has(name)
    });
    let problems = unknown.map(|name| Problem {
        source: Some(SettingSource::CommandLine),
        message: own.describe_unknown(name),
    });
    problems.collect()
}

/// Joins `--lr -1e-3` to `--lr=-1e-3`. A word with a dash would be taken for a flag, and the range check would never
/// see it.
fn glue_negatives(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut glued: Vec<OsString> = Vec::new();
    for arg in args {
        let negative = matches!(arg.as_encoded_bytes(), [b'-', b'0'..=b'9' | b'.', ..]);
        match glued.last_mut() {
            Some(flag) if negative && flag.as_encoded_bytes().starts_with(b"--") => {
                flag.push("=");
                flag.push(arg);
            }
            _ => glued.push(arg),
        }
    }
    glued
}

/// Builds the clap command from the table of flags.
fn command(optimizers: &Optimizers) -> Command {
    let about = "Trains a model on the ranks of a mesh. Without flags: a small byte-level model on text of this \
                 project, on 4 ranks.";
    Command::new("train")
        .version(env!("CARGO_PKG_VERSION"))
        .about(about)
        .max_term_width(80)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(FLAGS.iter().map(|flag| arg(flag, optimizers)))
        .arg(text_flag("help", 'h', ArgAction::Help).help("Print this text"))
        .arg(text_flag("version", 'V', ArgAction::Version).help("Print the version"))
}

/// Builds a flag that prints a text instead of running. Clap would list it first; here it comes last.
fn text_flag(name: &'static str, short: char, action: ArgAction) -> Arg {
    Arg::new(name).long(name).short(short).action(action).help_heading("Reports")
}

fn arg(flag: &'static Flag, optimizers: &Optimizers) -> Arg {
    let arg = Arg::new(flag.name)
        .long(flag.name)
        .help(help(flag, optimizers))
        .help_heading(flag.group)
        .value_parser(value_parser!(OsString));
    match flag.kind {
        FlagKind::Switch => arg.action(ArgAction::SetTrue).value_parser(value_parser!(bool)),
        _ => with_value(arg, flag),
    }
}

/// Returns the help of a flag; that of `--optimizer` ends with the optimizers that the program has registered.
fn help(flag: &Flag, optimizers: &Optimizers) -> String {
    let names = optimizers.entries().iter().map(OptimizerEntry::name);
    match flag.kind {
        FlagKind::Choice(known) if flag.name == "optimizer" => {
            let registered = names.filter(|name| !known.contains(name));
            registered.fold(flag.help.to_owned(), |help, name| format!("{help}; {name}"))
        }
        _ => flag.help.to_owned(),
    }
}

fn with_value(arg: Arg, flag: &'static Flag) -> Arg {
    let arg = arg.value_name(flag.value);
    let arg = if flag.default.is_empty() { arg } else { arg.default_value(flag.default) };
    if flag.alone.is_empty() { arg } else { arg.num_args(0..=1).default_missing_value(flag.alone) }
}

/// Converts an error of clap to a problem.
pub fn explain_clap_error(error: clap::Error) -> ConfigError {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(" "),
        _ => String::new(),
    };
    let arg = context(ContextKind::InvalidArg);
    // Clap names a known argument with its placeholder: `--lr <X>`.
    let known = arg.split(' ').next().unwrap_or_default();
    let message = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            return ConfigError::Asked(error.render().to_string());
        }
        ErrorKind::UnknownArgument => {
            format!("`{arg}` is not a flag; every setting is written as --name value")
        }
        ErrorKind::ArgumentConflict
            if [arg.as_str(), ""].contains(&&*context(ContextKind::PriorArg)) =>
        {
            format!("{known} was given twice")
        }
        ErrorKind::InvalidValue if !context(ContextKind::InvalidValue).is_empty() => {
            summary(&error)
        }
        ErrorKind::InvalidValue | ErrorKind::WrongNumberOfValues => {
            format!("{known} needs a value, written as {arg}")
        }
        ErrorKind::MissingRequiredArgument => format!("{arg} is missing"),
        ErrorKind::TooManyValues => format!(
            "{known} takes no value, but `{}` was given",
            context(ContextKind::InvalidValue)
        ),
        _ => summary(&error),
    };
    ConfigError::Invalid(vec![Problem { source: Some(SettingSource::CommandLine), message }])
}

/// Returns the message of clap without its usage.
fn summary(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.trim_start_matches("error: ");
    text.split("\n\n").next().unwrap_or_default().trim_end().to_owned()
}

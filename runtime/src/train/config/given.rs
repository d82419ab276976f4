//! The settings as they were given: the command line laid over a `--config` file, nothing interpreted yet.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command, value_parser};

use super::file;
use super::flags::{FLAGS, Flag, Kind};
use super::{ConfigError, OptimizerEntry, Optimizers, Problem, Source};

/// One value, still as text, with the place it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Given {
    /// The value; of a switch, `true` or `false`.
    pub text: OsString,
    /// The place.
    pub source: Source,
}

/// What was given, by flag name.
pub type GivenMap = HashMap<&'static str, Given>;

/// Reads the command line and the file that it names.
pub fn read(
    args: impl IntoIterator<Item = OsString>,
    optimizers: &Optimizers,
) -> Result<GivenMap, ConfigError> {
    let matches =
        command(optimizers).try_get_matches_from(glue_negatives(args)).map_err(explain)?;
    let mut given = GivenMap::new();
    for flag in FLAGS {
        if matches.value_source(flag.name) != Some(clap::parser::ValueSource::CommandLine) {
            continue;
        }
        let text = match flag.kind {
            Kind::Switch => OsString::from("true"),
            _ => matches.get_one::<OsString>(flag.name).cloned().unwrap_or_default(),
        };
        given.insert(flag.name, Given { text, source: Source::CommandLine });
    }
    if let Some(path) = given.get("config").map(|given| given.text.clone()) {
        for (name, value) in file::read(Path::new(&path)).map_err(ConfigError::Invalid)? {
            given.entry(name).or_insert(value);
        }
    }
    Ok(given)
}

/// Joins `--lr -1e-3` to `--lr=-1e-3`, since a word with a dash would pass for a flag and the check of the range
/// would never see it.
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

/// The command line that clap parses, made from the table of flags.
fn command(optimizers: &Optimizers) -> Command {
    let later: Vec<_> = FLAGS
        .iter()
        .filter(|flag| flag.kind == Kind::Later)
        .map(|flag| format!("--{}", flag.name))
        .collect();
    let wrapped = later.chunks(6).map(|names| names.join(" ")).collect::<Vec<_>>().join("\n  ");
    let about = "Trains a model on the ranks of a mesh. Without flags: a small byte-level model on text of this \
                 project, on 4 ranks.";
    Command::new("train")
        .version(env!("CARGO_PKG_VERSION"))
        .about(about)
        .after_help(format!("Refused until a later version brings them:\n  {wrapped}"))
        .max_term_width(100)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(FLAGS.iter().map(|flag| arg(flag, optimizers)))
        .arg(asking("help", 'h', ArgAction::Help).help("Print this text"))
        .arg(asking("version", 'V', ArgAction::Version).help("Print the version"))
}

/// A flag that asks for a text instead of a run; clap would list it first, here it comes last.
fn asking(name: &'static str, short: char, action: ArgAction) -> Arg {
    Arg::new(name).long(name).short(short).action(action).help_heading("Reports")
}

fn arg(flag: &'static Flag, optimizers: &Optimizers) -> Arg {
    let arg = Arg::new(flag.name)
        .long(flag.name)
        .help(help(flag, optimizers))
        .help_heading(flag.group)
        .value_parser(value_parser!(OsString));
    match flag.kind {
        Kind::Switch => arg.action(ArgAction::SetTrue).value_parser(value_parser!(bool)),
        Kind::Later => arg.num_args(0..=1).default_missing_value("").hide(true),
        _ => with_value(arg, flag),
    }
}

/// Returns the help of a flag; that of `--optimizer` ends with the optimizers that the program has registered.
fn help(flag: &Flag, optimizers: &Optimizers) -> String {
    let names = optimizers.entries().iter().map(OptimizerEntry::name);
    match flag.kind {
        Kind::Choice(known) if flag.name == "optimizer" => {
            let registered = names.filter(|name| !known.contains(name));
            registered.fold(flag.help.to_owned(), |help, name| format!("{help}; {name}"))
        }
        _ => flag.help.to_owned(),
    }
}

fn with_value(arg: Arg, flag: &'static Flag) -> Arg {
    let arg = arg.value_name(flag.value);
    if flag.default.is_empty() { arg } else { arg.default_value(flag.default) }
}

/// clap's verdict in the project's words.
fn explain(error: clap::Error) -> ConfigError {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(" "),
        _ => String::new(),
    };
    let arg = context(ContextKind::InvalidArg);
    // clap names a known argument with its placeholder: `--lr <X>`.
    let known = arg.split(' ').next().unwrap_or_default();
    let message = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            return ConfigError::Asked(error.render().to_string());
        }
        ErrorKind::UnknownArgument => match arg.strip_prefix("--") {
            Some(name) => unknown("flag", name, "--"),
            None => format!("`{arg}` is not a flag; every setting is written as --name value"),
        },
        ErrorKind::ArgumentConflict => format!("{known} was given twice"),
        ErrorKind::InvalidValue | ErrorKind::WrongNumberOfValues => {
            format!("{known} needs a value, written as {arg}")
        }
        ErrorKind::TooManyValues => format!(
            "{known} takes no value, but `{}` was given",
            context(ContextKind::InvalidValue)
        ),
        _ => error.render().to_string().trim_start_matches("error: ").trim_end().to_owned(),
    };
    ConfigError::Invalid(vec![Problem { source: Some(Source::CommandLine), message }])
}

/// The message for a name that no flag has; `what` is `flag` or `key`, `prefix` what stands before names.
pub fn unknown(what: &str, name: &str, prefix: &str) -> String {
    let dashed = name.replace('_', "-");
    let names = FLAGS.iter().filter(|flag| flag.kind != Kind::Later).map(|flag| flag.name);
    match Flag::nearest(&dashed, names) {
        Some(near) => format!("unknown {what} `{prefix}{name}`; did you mean `{prefix}{near}`?"),
        None => format!("unknown {what} `{prefix}{name}`; --help lists them all"),
    }
}

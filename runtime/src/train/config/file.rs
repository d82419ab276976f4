//! `--config` files: TOML with one top-level key per flag, in kebab-case or snake_case.

use std::ffi::OsString;
use std::path::Path;

use toml::de::{DeInteger, DeTable, DeValue};

use super::flags::{Flag, FlagKind};
use super::given_value::GivenValue;
use super::own_flags::OwnFlags;
use super::setting_value::AUTO;
use super::{Problem, SettingSource};
use crate::os::read_text;

/// Reads the settings of the file at `path`, or all problems with them.
pub fn read_file(
    path: &Path,
    own: &OwnFlags,
) -> Result<Vec<(&'static str, GivenValue)>, Vec<Problem>> {
    let text = read_text(path).map_err(|error| {
        let message = format!("--config: cannot read {}: {error}", path.display());
        vec![Problem { source: Some(SettingSource::CommandLine), message }]
    })?;
    parse(&text, path, own)
}

fn parse(
    text: &str,
    path: &Path,
    own: &OwnFlags,
) -> Result<Vec<(&'static str, GivenValue)>, Vec<Problem>> {
    let at = |offset: usize| SettingSource::File {
        path: path.to_owned(),
        line: 1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|b| **b == b'\n').count(),
    };
    let table = DeTable::parse(text).map_err(|error| {
        let source = Some(at(error.span().map_or(0, |span| span.start)));
        vec![Problem { source, message: format!("not valid TOML: {}", error.message()) }]
    })?;
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut given: Vec<(&'static str, GivenValue)> = Vec::new();
    let mut problems = Vec::new();
    for (key, value) in entries {
        let name = key.get_ref().as_ref();
        let source = at(key.span().start);
        let outcome = match parse_setting(name, value.get_ref(), own) {
            Ok((flag, _)) if given.iter().any(|(other, _)| *other == flag) => {
                Err(format!("`{name}` is set twice"))
            }
            other => other,
        };
        match outcome {
            Ok((flag, text)) => given.push((flag, GivenValue { text, source })),
            Err(message) => problems.push(Problem { source: Some(source), message }),
        }
    }
    if problems.is_empty() { Ok(given) } else { Err(problems) }
}

/// Returns the flag of a key, and its value as text for the command line.
fn parse_setting(
    name: &str,
    value: &DeValue<'_>,
    own: &OwnFlags,
) -> Result<(&'static str, OsString), String> {
    let dashed = name.replace('_', "-");
    if own.has(&dashed) {
        return Err(format!(
            "`{name}` is a flag of this program, and no setting; pass --{dashed} on the command line"
        ));
    }
    let flag = Flag::find(&dashed).ok_or_else(|| unknown_key(name, value))?;
    if flag.name == "config" {
        return Err("`config` cannot be set in a file; pass --config on the command line".into());
    }
    let text = match (flag.kind, value) {
        (FlagKind::Switch, DeValue::Boolean(value)) => Some(value.to_string()),
        (
            FlagKind::Count | FlagKind::CountOrAuto | FlagKind::Number | FlagKind::Bytes,
            DeValue::Integer(number),
        ) => Some(decimal(number)),
        (FlagKind::Number, DeValue::Float(number)) => Some(number.to_string()),
        (FlagKind::Pair, DeValue::Array(items)) => {
            let items: Option<Vec<_>> =
                items.iter().map(|item| number_text(item.get_ref())).collect();
            items.map(|items| items.join(","))
        }
        (FlagKind::Text, DeValue::Table(table)) if flag.name == "mesh" => mesh_text(table),
        (
            FlagKind::Pair
            | FlagKind::Path
            | FlagKind::Text
            | FlagKind::Choice(_)
            | FlagKind::Bytes,
            DeValue::String(text),
        ) => Some(text.to_string()),
        (FlagKind::CountOrAuto, DeValue::String(text)) if text.as_ref() == AUTO => {
            Some(AUTO.to_owned())
        }
        _ => None,
    };
    match text {
        Some(text) => Ok((flag.name, text.into())),
        None => {
            Err(format!("`{name}` must be {}, not {}", expected_value(flag), describe_value(value)))
        }
    }
}

fn unknown_key(name: &str, value: &DeValue<'_>) -> String {
    match value {
        DeValue::Table(_) => {
            format!(
                "unknown table `{name}`; keys must be at the top level of the file, outside of any table"
            )
        }
        _ => Flag::describe_unknown("key", name, ""),
    }
}

fn number_text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::Integer(number) => Some(decimal(number)),
        DeValue::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Formats an integer of any base, `0x10` as `16`; one that 128 bits do not hold stays as it is.
fn decimal(number: &DeInteger<'_>) -> String {
    u128::from_str_radix(number.as_str(), number.radix())
        .map_or_else(|_| number.to_string(), |number| number.to_string())
}

/// Formats `{ dp = 2, tp = 2 }` for `--mesh`.
fn mesh_text(table: &DeTable<'_>) -> Option<String> {
    let degrees: Option<Vec<_>> = table
        .iter()
        .map(|(axis, degree)| {
            Some(format!("{}={}", axis.get_ref(), number_text(degree.get_ref())?))
        })
        .collect();
    degrees.map(|degrees| degrees.join(","))
}

fn expected_value(flag: &Flag) -> String {
    match flag.kind {
        FlagKind::Count => "a whole number".into(),
        FlagKind::CountOrAuto => "a whole number, or \"auto\"".into(),
        FlagKind::Number => "a number".into(),
        FlagKind::Bytes => "a number of bytes, such as 1_000_000 or \"512MiB\"".into(),
        FlagKind::Pair => "two numbers, such as [0.9, 0.95]".into(),
        FlagKind::Path => "a path in quotes".into(),
        FlagKind::Text if flag.name == "mesh" => "text such as \"dp=2,tp=2\"".into(),
        FlagKind::Text => "text in quotes".into(),
        FlagKind::Choice(words) => format!("one of \"{}\"", words.join("\", \"")),
        FlagKind::Switch => "true or false".into(),
    }
}

fn describe_value(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the text \"{text}\""),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(value) => format!("{value}"),
        DeValue::Datetime(date) => format!("the date {date}"),
        DeValue::Array(_) => "this list".into(),
        DeValue::Table(_) => "a table".into(),
    }
}

//! `--config` files: TOML with one top-level key per flag, in kebab-case or snake_case.

use std::ffi::OsString;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::flags::{Flag, Kind};
use super::given::{Given, unknown};
use super::{Problem, Source};

/// The settings of the file at `path`, or everything that is wrong with it.
pub fn read(path: &Path) -> Result<Vec<(&'static str, Given)>, Vec<Problem>> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let message = format!("--config: cannot read {}: {error}", path.display());
        vec![Problem { source: Some(Source::CommandLine), message }]
    })?;
    parse(&text, path)
}

fn parse(text: &str, path: &Path) -> Result<Vec<(&'static str, Given)>, Vec<Problem>> {
    let at = |offset: usize| Source::File {
        path: path.to_owned(),
        line: 1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|b| **b == b'\n').count(),
    };
    let table = DeTable::parse(text).map_err(|error| {
        let source = Some(at(error.span().map_or(0, |span| span.start)));
        vec![Problem { source, message: format!("not valid TOML: {}", error.message()) }]
    })?;
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut given: Vec<(&'static str, Given)> = Vec::new();
    let mut problems = Vec::new();
    for (key, value) in entries {
        let name = key.get_ref().as_ref();
        let source = at(key.span().start);
        let outcome = match setting(name, value.get_ref()) {
            Ok((flag, _)) if given.iter().any(|(other, _)| *other == flag) => {
                Err(format!("`{name}` is set twice"))
            }
            other => other,
        };
        match outcome {
            Ok((flag, text)) => given.push((flag, Given { text, source })),
            Err(message) => problems.push(Problem { source: Some(source), message }),
        }
    }
    if problems.is_empty() { Ok(given) } else { Err(problems) }
}

/// The flag that a key names, and its value as the command line would write it.
fn setting(name: &str, value: &DeValue<'_>) -> Result<(&'static str, OsString), String> {
    let flag = Flag::find(&name.replace('_', "-")).ok_or_else(|| unknown_key(name, value))?;
    if flag.name == "config" {
        return Err("`config` has no place in a file; name the file on the command line".into());
    }
    let text = match (flag.kind, value) {
        (Kind::Later, _) => Some(String::new()),
        (Kind::Switch, DeValue::Boolean(value)) => Some(value.to_string()),
        (
            Kind::Count { .. } | Kind::Number | Kind::Fraction | Kind::Bytes,
            DeValue::Integer(number),
        ) => Some(number.to_string()),
        (Kind::Number | Kind::Fraction, DeValue::Float(number)) => Some(number.to_string()),
        (Kind::Pair, DeValue::Array(items)) => {
            let items: Option<Vec<_>> = items.iter().map(|item| number(item.get_ref())).collect();
            items.map(|items| items.join(","))
        }
        (Kind::Text, DeValue::Table(table)) if flag.name == "mesh" => degrees(table),
        (
            Kind::Pair | Kind::Path | Kind::Text | Kind::Choice(_) | Kind::Bytes,
            DeValue::String(text),
        ) => Some(text.to_string()),
        _ => None,
    };
    match text {
        Some(text) => Ok((flag.name, text.into())),
        None => Err(format!("`{name}` must be {}, not {}", wanted(flag), found(value))),
    }
}

fn unknown_key(name: &str, value: &DeValue<'_>) -> String {
    match value {
        DeValue::Table(_) => {
            format!("unknown table `{name}`; keys stand at the top of the file, outside any table")
        }
        _ => unknown("key", name, ""),
    }
}

fn number(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

/// `{ dp = 2, tp = 2 }` in the words of `--mesh`.
fn degrees(table: &DeTable<'_>) -> Option<String> {
    let degrees: Option<Vec<_>> = table
        .iter()
        .map(|(axis, degree)| Some(format!("{}={}", axis.get_ref(), number(degree.get_ref())?)))
        .collect();
    degrees.map(|degrees| degrees.join(","))
}

fn wanted(flag: &Flag) -> String {
    match flag.kind {
        Kind::Count { .. } => "a whole number".into(),
        Kind::Number | Kind::Fraction => "a number".into(),
        Kind::Bytes => "a number of bytes, such as 1_000_000 or \"512MiB\"".into(),
        Kind::Pair => "two numbers, such as [0.9, 0.95]".into(),
        Kind::Path => "a path in quotes".into(),
        Kind::Text if flag.name == "mesh" => "text such as \"dp=2,tp=2\"".into(),
        Kind::Text | Kind::Later => "text in quotes".into(),
        Kind::Choice(words) => format!("one of \"{}\"", words.join("\", \"")),
        Kind::Switch => "true or false".into(),
    }
}

fn found(value: &DeValue<'_>) -> String {
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

//! The `--` before the program, without which the flags of the program would be taken for those of `meshwright run`.

use std::ffi::OsString;
use std::iter::Peekable;

use clap::{Arg, Command};

use super::Failure;

/// Checks that the program among the words after `run` follows `--`. Unknown flags are left to the parser.
///
/// # Errors
/// A program without it.
pub fn check_separator(
    command: &Command,
    words: impl Iterator<Item = OsString>,
) -> Result<(), Failure> {
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        let Some(text) = word.to_str().filter(|text| text.len() > 1 && text.starts_with('-'))
        else {
            let word = word.display();
            return Err(
                format!("`{word}` needs -- before it: meshwright run .. -- {word} ..").into()
            );
        };
        let Some(flag) = find_flag(command, text).filter(|_| text != "--") else { return Ok(()) };
        skip_value(flag, text, &mut words);
    }
    Ok(())
}

/// Returns the flag that a word begins.
fn find_flag<'a>(command: &'a Command, text: &str) -> Option<&'a Arg> {
    let name = text.split('=').next().unwrap_or(text);
    command.get_arguments().find(|flag| match name.strip_prefix("--") {
        Some(long) => flag.get_long() == Some(long),
        None => flag.get_short().is_some() && flag.get_short() == name.chars().nth(1),
    })
}

/// Skips the value of a flag, if it is the next word. One that may be left out is a number.
fn skip_value(flag: &Arg, text: &str, words: &mut Peekable<impl Iterator<Item = OsString>>) {
    let is_joined = text.contains('=') || !text.starts_with("--") && text.len() > 2;
    let is_optional = flag.get_num_args().is_some_and(|count| count.min_values() == 0);
    let is_value = |next: &OsString| {
        !is_optional || next.to_str().is_some_and(|next| next.parse::<u64>().is_ok())
    };
    if !is_joined && flag.get_action().takes_values() {
        words.next_if(is_value);
    }
}

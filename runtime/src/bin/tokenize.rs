//! Tokenises text for training: `cargo run --release --bin tokenize -- --help`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use meshwright::data::{
    Documents, Encoding, TokenizeError, TokenizeProgress, Tokenizer, tokenize_files,
};

const ABOUT: &str = "Tokenises text into a .bin file of token ids, which --data trains on";

const AFTER: &str = "\
Documents are tokenized one by one: each input file, or the text between two --separator.
A document of more than 64 KiB is cut, at a line break where there is one.
The output is written under a hidden name and renamed when it is complete.";

fn main() {
    let matches = command().get_matches();
    match run(&matches) {
        // Whoever reads may have stopped reading: that is no failure of the work done.
        Ok(report) => drop(writeln!(std::io::stdout(), "{report}")),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            std::process::exit(2);
        }
    }
}

fn command() -> Command {
    let flag = |name: &'static str| Arg::new(name).long(name);
    let path = || ValueParser::path_buf();
    Command::new("tokenize")
        .about(ABOUT)
        .after_help(AFTER)
        .arg(
            Arg::new("input")
                .value_name("INPUT")
                .value_parser(path())
                .action(ArgAction::Append)
                .required(true)
                .help("Text files, in the order of their tokens; - is standard input"),
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("OUT.bin")
                .value_parser(path())
                .required(true)
                .help("Where the token ids go, little-endian"),
        )
        .arg(
            flag("tokenizer")
                .value_name("tokenizer.json|bytes")
                .value_parser(path())
                .required(true)
                .help("A Hugging Face tokenizer.json, or bytes"),
        )
        .arg(
            flag("dtype").value_name("DTYPE").value_parser(["u16", "u32"]).help(
                "Width of an id [default: u16 where every id of the tokenizer fits, else u32]",
            ),
        )
        .arg(
            flag("append-eos")
                .value_name("TOKEN")
                .help("Put this token after each document, such as <|endoftext|>"),
        )
        .arg(flag("separator").value_name("TEXT").help(
            "What ends a document and belongs to none; \\n stands for a line break, \\t for a tab \
             [default: none, each file is one document]",
        ))
}

fn run(matches: &ArgMatches) -> Result<String, TokenizeError> {
    let path = |name: &str| matches.get_one::<PathBuf>(name).cloned().unwrap_or_default();
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let inputs: Vec<PathBuf> = matches.get_many("input").into_iter().flatten().cloned().collect();
    let tokenizer = Tokenizer::open(&path("tokenizer"))?;
    let width = match text("dtype") {
        Some("u16") => Encoding::U16,
        Some(_) => Encoding::U32,
        None => Encoding::for_vocab(tokenizer.vocab()),
    };
    let end = text("append-eos").map(|token| tokenizer.end_token(token)).transpose()?;
    let separator = text("separator").map(|text| text.replace("\\n", "\n").replace("\\t", "\t"));
    let documents = Documents { separator, end };
    let output = path("output");

    let start = Instant::now();
    let mut progress = TokenizeProgress::new(total_bytes(&inputs));
    let mut show = |bytes| progress.show(bytes);
    let done = tokenize_files(&tokenizer, &inputs, &documents, &output, width, &mut show);
    progress.finish();
    let done = done?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(format!(
        "{}: {} tokens of {} bits, from {} documents with {} bytes; {seconds:.1} s, {:.1} MB/s",
        output.display(),
        done.tokens,
        8 * width.width(),
        done.documents,
        done.bytes,
        done.bytes as f64 / seconds / 1e6,
    ))
}

/// Length of all inputs, where they are files.
fn total_bytes(inputs: &[PathBuf]) -> Option<u64> {
    let bytes = |path: &PathBuf| {
        let metadata = std::fs::metadata(path).ok().filter(|_| path != Path::new("-"))?;
        metadata.is_file().then_some(metadata.len())
    };
    inputs.iter().map(bytes).sum()
}

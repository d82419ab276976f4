//! Tokenizes text for training: `cargo run --release --bin tokenize -- --help`.

#[path = "meshwright/failure.rs"]
mod failure;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use failure::Failure;
use meshwright::data::{
    Encoding, TextDocuments, TokenizeError, TokenizeProgress, Tokenizer, tokenize_files,
};
use meshwright::exit_code::exit_on_panic;
use meshwright::{counted, finish_stdout, print_text};

const ABOUT: &str = "Tokenizes text into a .bin file of token ids for --data";

const AFTER: &str = "\
Each document is tokenized separately: a text file, the text between two --separator, a line of JSONL, or a row of a
Parquet file. Inputs may be compressed by gzip or zstd; their content decides, not their names.
A document of more than 64 KiB is split, at a line break if possible.
OUT.bin.json records the tokenizer, the vocabulary and the width, so that --data OUT.bin needs no flag for them.
The output is written to a hidden file and renamed when it is complete. If the program is stopped, the file stays; the
next run for the same output removes it. Devices are refused as inputs, as they may have no end.";

fn main() -> ExitCode {
    meshwright::ignore_file_size_signal();
    let outcome = exit_on_panic(|| match command().try_get_matches() {
        Ok(matches) => tokenize_by_flags(&matches)
            .map_err(|error| Failure::new(error.to_string(), &error))
            .and_then(|report| print_report(&report)),
        Err(error) if error.use_stderr() => Err(error.into()),
        Err(help) => {
            finish_stdout(help.print()).map_err(|error| Failure::new(error.to_string(), &error))
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { message, code }) => {
            let _ = writeln!(std::io::stderr(), "error: {message}");
            ExitCode::from(code)
        }
    }
}

/// Prints the report.
fn print_report(report: &str) -> Result<(), Failure> {
    print_text(&format!("{report}\n")).map_err(|error| {
        let message = format!("the output is complete, but its report is lost: {error}");
        Failure::new(message, &error)
    })
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
                .help("Files of text, JSONL or Parquet, in the order of their tokens; - is standard input"),
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("OUT.bin")
                .value_parser(path())
                .required(true)
                .help("Output file of token ids, little-endian"),
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
                "Width of an id [default: that in the name OUT.u16.bin or OUT.u32.bin, else u16 if every id of the \
                 tokenizer fits, else u32]",
            ),
        )
        .arg(
            flag("bos")
                .value_name("TOKEN")
                .help("Put this token before each document, such as <|begin_of_text|>, or id=1 for an id"),
        )
        .arg(flag("eos").visible_alias("append-eos").value_name("TOKEN").help(
            "Put this token after each document, such as <|endoftext|>, or id=0 for an id; \"\" puts none [default: \
             none for text; for JSONL and Parquet the token that the tokenizer ends texts with, or a line break]",
        ))
        .arg(
            flag("text-key")
                .value_name("KEY")
                .default_value("text")
                .help("Key of the text in JSONL, and its column in Parquet"),
        )
        .arg(flag("separator").value_name("TEXT").help(
            "Separator between documents of plain text, part of neither; \\n is a line break, \\t a tab [default: \
             none, each file is one document]",
        ))
}

fn tokenize_by_flags(matches: &ArgMatches) -> Result<String, TokenizeError> {
    let path = |name: &str| matches.get_one::<PathBuf>(name).cloned().unwrap_or_default();
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let inputs: Vec<PathBuf> = matches.get_many("input").into_iter().flatten().cloned().collect();
    let tokenizer = Tokenizer::open(&path("tokenizer"))?;
    let output = path("output");
    let width = match text("dtype") {
        Some("u16") => Encoding::U16,
        Some(_) => Encoding::U32,
        None => Encoding::for_file(&output, tokenizer.vocab()),
    };
    let token = |flag: &'static str| {
        let name = text(&flag[2..]).filter(|name| !name.is_empty());
        name.map(|name| tokenizer.token_id(flag, name)).transpose()
    };
    let (begin, end) = (token("--bos")?, token("--eos")?);
    let separator = text("separator").map(|text| text.replace("\\n", "\n").replace("\\t", "\t"));
    let key = text("text-key").unwrap_or_default().to_owned();
    let record_end = text("eos").map(|_| end.into_iter().collect());
    let documents = TextDocuments { separator, key, begin, end, record_end };

    let start = Instant::now();
    let mut progress = TokenizeProgress::new(total_bytes(&inputs));
    let mut show = |bytes| progress.show_progress(bytes);
    let done = tokenize_files(&tokenizer, &inputs, &documents, &output, width, &mut show);
    progress.finish();
    let done = done?;
    let seconds = start.elapsed().as_secs_f64();
    let moved =
        done.moved.map(|path| format!("; its earlier content is now in {}", path.display()));
    Ok(format!(
        "{}: {} of {} bits, from {} with {}; {seconds:.1} s, {:.1} MB/s{}",
        output.display(),
        counted(done.tokens as usize, "token"),
        8 * width.width(),
        counted(done.documents as usize, "document"),
        counted(done.bytes as usize, "byte"),
        done.bytes as f64 / seconds / 1e6,
        moved.unwrap_or_default(),
    ))
}

/// Returns the total size of the inputs, if all are regular files.
fn total_bytes(inputs: &[PathBuf]) -> Option<u64> {
    let bytes = |path: &PathBuf| {
        let metadata = std::fs::metadata(path).ok().filter(|_| path != Path::new("-"))?;
        metadata.is_file().then_some(metadata.len())
    };
    inputs.iter().map(bytes).sum()
}

//! The tokens of a run, and the tokenizer that decodes them.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::data::{
    DataError, DataFormat, DataInput, DataSource, Dataset, Encoded, MadeRows, TextDocuments,
    TokenFile, TokenizeError, TokenizeProgress, Tokenizer, TokensRecord, read_corpus,
    tokenize_input,
};
use crate::os::{allow_open_files, is_limit_of_open_files};
use crate::train::config::{Config, OwnRows, RunSettings};
use crate::train::console::{counted_with_commas, print_shared, with_commas};
use crate::train::{Error, Result, Task};

use super::data_list::DataList;
use super::data_tokenizer::{
    check_one_tokenizer, choose_decoder, choose_text_tokenizer, tokenizer_of_model,
};
use super::listed_files::ListedSource;
use super::synthetic_rows::SyntheticRows;

/// Opens `--data`, or the rows that the program makes, for a model with `vocab` token ids; a dry run without either has
/// [`SyntheticRows`]. Returns the tokenizer that decodes the tokens, too, if it is known.
///
/// # Errors
/// As [`open_sources`].
pub fn open_training_data(
    config: &Config,
    vocab: usize,
) -> Result<(Vec<DataSource>, Option<Tokenizer>)> {
    let flag = "--data";
    if config.has_synthetic_data() {
        let rows = MadeRows::new(Arc::new(SyntheticRows), vocab);
        return Ok((vec![DataSource::of_rows(rows)], None));
    }
    if let Some(OwnRows(source)) = &config.rows {
        check_rows_replace_files(config, source.name())?;
        let rows = MadeRows::new(Arc::clone(source), vocab);
        let path = config.tokenizer.clone().or_else(|| tokenizer_of_model(config));
        let tokenizer = path.map(|path| Tokenizer::open(&path)).transpose()?;
        return Ok((vec![DataSource::of_rows(rows)], tokenizer));
    }
    let list = config.data.as_deref().map(|list| DataList::read(flag, list)).transpose()?;
    open_sources(config, list, vocab)
}

/// Prepares the folder of `--data-cache`.
///
/// # Errors
/// A folder that cannot be written to.
pub fn use_cache(config: &Config) -> Result<()> {
    #[cfg(feature = "remote")]
    if config.data_cache.is_some() || config.data_cache_size.is_some() {
        let bytes = config.data_cache_size.map(|bytes| bytes as u64);
        crate::data::use_data_cache(config.data_cache.as_deref(), bytes)?;
    }
    // Without the feature, the data are refused when they are opened.
    let _ = config;
    Ok(())
}

/// Checks that no flag is about files of data, in a program that makes its rows.
fn check_rows_replace_files(config: &Config, name: &str) -> Result<()> {
    let flags = [
        ("--data", config.data.is_some()),
        ("--text-key", config.text_key.is_some()),
        ("--token-dtype", config.token_dtype.is_some()),
        ("--eval-fraction", config.eval_fraction.is_some()),
        ("--documents", config.documents.is_some()),
    ];
    match flags.iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(Error::Input(format!(
            "{flag}: the program makes its data, {name}, instead of reading files; leave it out"
        ))),
        None => Ok(()),
    }
}

/// Opens the sources of `list`, by default the project's own text, and `--tokenizer`, for a model with `vocab` token
/// ids. Returns the tokenizer that decodes the tokens, too, if it is known. Errors name `--data`.
///
/// # Errors
/// Files that cannot be read, are of several tokenizers, or of text and ids together.
pub fn open_sources(
    config: &Config,
    list: Option<DataList>,
    vocab: usize,
) -> Result<(Vec<DataSource>, Option<Tokenizer>)> {
    let Some(list) = list else {
        let text = Box::new(Cursor::new(read_corpus(&own_text())?));
        let input = DataInput::of_stream(Path::new("the project's own text"), None, text)?;
        let (mut files, tokenizer) = open_files(config, vec![input], vocab)?;
        return Ok((files.drain(..).map(DataSource::of_file).collect(), tokenizer));
    };
    allow_open_files(list.files().count());
    let paths: Vec<&Path> = list.files().collect();
    let inputs = DataInput::open_all(&paths, config.token_dtype).map_err(|error| match &error {
        DataError::Io { source, .. } if is_limit_of_open_files(source) => Error::Input(format!(
            "{error}; a run keeps its files open: raise the limit (ulimit -n), or join files"
        )),
        _ => error.into(),
    });
    let (files, tokenizer) = open_files(config, inputs?, vocab)?;
    let mut files = files.into_iter();
    let sources = list.sources.into_iter().map(|source| {
        let ListedSource { name, weight, order, files: paths } = source;
        let files = files.by_ref().take(paths.len()).collect();
        DataSource { weight, order, ..DataSource::of_files(name, files) }
    });
    Ok((sources.collect(), tokenizer))
}

/// Opens the tokens of files for a model with `vocab` token ids, and the tokenizer that decodes them, if it is known.
fn open_files(
    config: &Config,
    inputs: Vec<DataInput>,
    vocab: usize,
) -> Result<(Vec<TokenFile>, Option<Tokenizer>)> {
    check_text_key(&inputs, config)?;
    if let Some(empty) = inputs.iter().find(|input| input.is_empty()) {
        return Err(DataError::Empty { name: empty.path().display().to_string() }.into());
    }
    let text = inputs.iter().find(|input| !input.format().is_tokens());
    let ids = inputs.iter().find(|input| input.format().is_tokens());
    let tokenizer = match (text, ids) {
        (Some(text), Some(ids)) => {
            let [text, ids] = [text, ids].map(|input| input.path().display());
            return Err(Error::Input(format!(
                "--data: {text} is text, and {ids} token ids; name files of one kind, such as by a glob, or turn the \
                 text into ids by `tokenize`"
            )));
        }
        (Some(text), None) => Some(choose_text_tokenizer(config, text, vocab)?),
        (None, _) => None,
    };
    let is_single = inputs.len() == 1;
    let mut totals = Vec::new();
    let files: Result<Vec<TokenFile>> = inputs
        .into_iter()
        .map(|input| match &tokenizer {
            Some(tokenizer) if !(tokenizer.is_bytes() && *input.format() == DataFormat::Text) => {
                let name = input.path().display().to_string();
                let (file, encoded) = tokenize(input, tokenizer, config, vocab)?;
                totals.push((name, encoded));
                Ok(file)
            }
            _ => Ok(TokenFile::of_input(input, vocab)?),
        })
        .collect();
    let files = files?;
    if let Some(tokenizer) = tokenizer.as_ref().filter(|_| !config.quiet) {
        describe_records(&totals, is_single, tokenizer);
    }
    check_one_tokenizer(&files)?;
    let tokenizer = match tokenizer {
        Some(tokenizer) => Some(tokenizer),
        None => choose_decoder(config, &files[0])?,
    };
    Ok((files, tokenizer))
}

/// Checks that `--text-key` has a use: training or validation data of records.
fn check_text_key(inputs: &[DataInput], config: &Config) -> Result<()> {
    let has_no_keys =
        |input: &&DataInput| input.format().is_tokens() || *input.format() == DataFormat::Text;
    let validation = config.validation.as_ref().and_then(|validation| validation.data.as_ref());
    let plain = inputs.iter().filter(has_no_keys).count();
    if config.text_key.is_none() || plain < inputs.len() || validation.is_some() {
        return Ok(());
    }
    let kind = if inputs[0].format().is_tokens() { "token ids" } else { "plain text" };
    Err(Error::Input(format!(
        "--text-key: {} holds {kind}, whose documents have no keys; leave it out",
        inputs[0].path().display()
    )))
}

/// Returns the settings with the vocabulary of `--tokenizer`, or of the record beside `--data`, if a new model is to be
/// trained and `--vocab` is not given.
///
/// # Errors
/// A tokenizer or a record that cannot be read.
pub fn with_vocab_of_data<T: Task>(mut settings: RunSettings) -> Result<RunSettings> {
    if settings.has_model_file() || settings.is_given("vocab") {
        return Ok(settings);
    }
    let vocab = match (&settings.tokenizer, &settings.data) {
        (Some(path), _) => Some(Tokenizer::open(path)?.vocab()),
        (None, Some(list)) if T::READS_TOKENS => {
            let list = DataList::read("--data", list)?;
            let record = list.files().next().map(TokensRecord::beside).transpose()?.flatten();
            record.map(|record| record.vocab)
        }
        (None, _) => None,
    };
    settings.vocab = vocab.unwrap_or(settings.vocab);
    Ok(settings)
}

/// Returns the samples of the sources: of documents, if `--documents` is given.
pub fn sample(sources: Vec<DataSource>, config: &Config) -> Result<Dataset> {
    let Config { seq, batch, order, seed, .. } = *config;
    let documents = config.documents.filter(|_| !config.has_synthetic_data());
    let dataset = Dataset::of_sources(sources, seq, batch, (order, seed), documents)?;
    let short: Vec<&TokenFile> = dataset.files_without_rows().collect();
    if let [first, others @ ..] = &short[..] {
        let others = match others.len() {
            0 => "is",
            1 => "and another file are",
            others => &format!("and {} other files are", with_commas(others as u64)),
        };
        print_shared(&format!(
            "warning: --data: {} {others} shorter than a row, seq + 1 = {} tokens, and not read; join short files, or \
             give --documents and --pack",
            first.name(),
            seq + 1
        ));
    }
    Ok(dataset)
}

/// Tokenizes text, and shows the progress. `--documents` states the token after each record.
fn tokenize(
    input: DataInput,
    tokenizer: &Tokenizer,
    config: &Config,
    vocab: usize,
) -> Result<(TokenFile, Encoded)> {
    let len = input.regular_file().and_then(|file| Some(file.metadata().ok()?.len()));
    let mut documents = TextDocuments::default();
    documents.record_end = config.documents.map(|options| vec![options.end]);
    if let Some(key) = &config.text_key {
        documents.key.clone_from(key);
    }
    let mut progress = TokenizeProgress::new(len);
    let mut show = |bytes| {
        if !config.quiet {
            progress.show_progress(bytes);
        }
    };
    let done = tokenize_input(tokenizer, input, &documents, vocab, &mut show);
    progress.finish();
    match done {
        Ok(done) => Ok(done),
        Err(TokenizeError::File(problem)) => Err(DataError::File(problem).into()),
        Err(TokenizeError::Read { name, source }) => {
            Err(DataError::Io { path: name.into(), source }.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Prints how the documents of files of records are separated.
fn describe_records(files: &[(String, Encoded)], is_single: bool, tokenizer: &Tokenizer) {
    let Some((name, end)) =
        files.iter().find_map(|(name, encoded)| Some((name, encoded.record_end.as_ref()?)))
    else {
        return;
    };
    let ids: Vec<String> = end.iter().map(ToString::to_string).collect();
    let after = match &end[..] {
        [] => "nothing".to_owned(),
        end => format!("token {} ({:?})", ids.join(" "), tokenizer.decode(end)),
    };
    let documents = files.iter().map(|(_, encoded)| encoded.documents).sum::<u64>();
    let of = if is_single { name.clone() } else { format!("{} files", files.len()) };
    let documents = counted_with_commas(documents as usize, "document");
    print_shared(&format!("{documents} of {of}, with {after} after each"));
}

/// Returns the project's own book, the text of a run without `--data`. It is plain prose, so a minute of training has a
/// visible effect.
pub fn own_text() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    ["README.md", "book/src"].map(|part| root.join(part)).into()
}

//! The tokens of a run, and the tokenizer that decodes them.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use crate::checkpoint::hf::SideFiles;
use crate::data::{
    DataError, DataFormat, DataInput, Dataset, Encoded, TextDocuments, TokenFile, TokenizeError,
    TokenizeProgress, Tokenizer, TokensRecord, read_corpus, tokenize_input,
};
use crate::train::config::{Config, ModelSource, RunSettings};
use crate::train::console::{print_line, with_commas};
use crate::train::{Error, Result};

/// Opens the tokens at `path`, by default of the project's own text, and `--tokenizer` for a model with `vocab` token
/// ids, and the tokenizer that decodes them, if known.
pub fn open_dataset(
    config: &Config,
    path: Option<&Path>,
    vocab: usize,
) -> Result<(TokenFile, Option<Tokenizer>)> {
    let input = match path {
        Some(path) => DataInput::open(path, config.token_dtype)?,
        None => {
            let text = Box::new(Cursor::new(read_corpus(&own_text())?));
            DataInput::of_stream(Path::new("the project's own text"), None, text)?
        }
    };
    open_input(input, config, vocab)
}

/// Opens the tokens of a file for a model with `vocab` token ids, and the tokenizer that decodes them, if known.
fn open_input(
    input: DataInput,
    config: &Config,
    vocab: usize,
) -> Result<(TokenFile, Option<Tokenizer>)> {
    check_text_key(&input, config)?;
    if input.format().is_tokens() {
        let path = input.path().to_owned();
        let file = TokenFile::of_input(input, vocab)?;
        let tokenizer = choose_decoder(config, &path, &file)?;
        return Ok((file, tokenizer));
    }
    let tokenizer = choose_tokenizer(config)?;
    // The vocabulary of a folder is given, and its tokenizer may have ids that no text uses.
    let ids = tokenizer.vocab();
    if matches!(config.model, ModelSource::New(_)) && !tokenizer.is_bytes() && ids > vocab {
        let tokenizer = tokenizer.name().to_owned();
        return Err(DataError::WideTokenizer { tokenizer, ids, vocab }.into());
    }
    if tokenizer.is_bytes() && vocab < 256 {
        let name = input.path().display().to_string();
        return Err(DataError::SmallVocabulary { name, vocab }.into());
    }
    let file = match (input.format(), tokenizer.is_bytes()) {
        (DataFormat::Text, true) => TokenFile::of_input(input, vocab)?,
        _ => tokenize(input, &tokenizer, config, vocab)?,
    };
    Ok((file, Some(tokenizer)))
}

/// Checks that `--text-key` has a use: training or validation data of records.
fn check_text_key(input: &DataInput, config: &Config) -> Result<()> {
    let has_no_keys = input.format().is_tokens() || *input.format() == DataFormat::Text;
    let validation = config.validation.as_ref().and_then(|validation| validation.data.as_ref());
    if config.text_key.is_none() || !has_no_keys || validation.is_some() {
        return Ok(());
    }
    let kind = if input.format().is_tokens() { "token ids" } else { "plain text" };
    Err(Error::Input(format!(
        "--text-key: {} holds {kind}, whose documents have no keys; leave it out",
        input.path().display()
    )))
}

/// Returns the settings with the vocabulary of `--tokenizer`, or of the record beside `--data`, if a new model is to be
/// trained and `--vocab` is not given.
///
/// # Errors
/// A tokenizer or a record that cannot be read.
pub fn with_vocab_of_data(mut settings: RunSettings) -> Result<RunSettings> {
    if settings.init_from.is_some() || settings.is_given("vocab") {
        return Ok(settings);
    }
    let vocab = match (&settings.tokenizer, &settings.data) {
        (Some(path), _) => Some(Tokenizer::open(path)?.vocab()),
        (None, Some(path)) => TokensRecord::beside(path)?.map(|record| record.vocab),
        (None, None) => None,
    };
    settings.vocab = vocab.unwrap_or(settings.vocab);
    Ok(settings)
}

/// Returns the samples of `file`: of documents, if `--documents` is given.
pub fn sample(file: TokenFile, config: &Config) -> Result<Dataset> {
    let Config { seq, batch, order, seed, .. } = *config;
    Ok(match config.documents {
        Some(options) => Dataset::of_documents(file, seq, batch, order, seed, options)?,
        None => Dataset::new(file, seq, batch, order, seed)?,
    })
}

/// Returns the tokenizer of text: `--tokenizer`, else that of the `--init-from` folder, and bytes for a new model.
fn choose_tokenizer(config: &Config) -> Result<Tokenizer> {
    match (config.tokenizer.clone().or_else(|| tokenizer_of_model(config)), &config.model) {
        (Some(path), _) => Ok(Tokenizer::open(&path)?),
        (None, ModelSource::InitFrom(folder)) => Err(refuse_bytes(folder)),
        (None, ModelSource::New(_)) => Ok(Tokenizer::Bytes),
    }
}

/// Refuses to read text by bytes into the learned ids of a folder.
fn refuse_bytes(folder: &Path) -> Error {
    let names = SideFiles::tokenizer_names(folder);
    let folder = folder.display();
    let reason = if names.is_empty() {
        "has no tokenizer; add its tokenizer.json".to_owned()
    } else {
        format!(
            "has a tokenizer ({}), but no tokenizer.json; convert it with the Python library transformers: \
             AutoTokenizer.from_pretrained(\"{folder}\").save_pretrained(\"{folder}\")",
            names.join(", ")
        )
    };
    Error::Input(format!(
        "--init-from: text has to become the tokens that the model knows, but {folder} {reason}; or name one by \
         --tokenizer FILE.json, or read bytes by --tokenizer bytes"
    ))
}

/// Returns the tokenizer that decodes the ids of the file at `path`: the one that is given, that of the `--init-from`
/// folder, or the one that is recorded beside the file. A program without support for tokenizer files ignores those
/// that are not given rather than refusing to train.
fn choose_decoder(config: &Config, path: &Path, file: &TokenFile) -> Result<Option<Tokenizer>> {
    let recorded = file.tokenizer();
    let differs = |tokenizer: &Tokenizer| {
        recorded.filter(|recorded| !recorded.is_same(&tokenizer.record())).map(|recorded| {
            let (path, own) = (path.display(), tokenizer.record());
            format!("{path} has token ids of {recorded}, which differs from {own}")
        })
    };
    if config.tokenizer.is_some() {
        let given = choose_tokenizer(config)?;
        return match differs(&given) {
            Some(difference) => Err(Error::Input(format!(
                "--tokenizer: {difference}; give the tokenizer of the data, or leave it out"
            ))),
            None => Ok(Some(given)),
        };
    }
    match tokenizer_of_model(config).map(|path| Tokenizer::open(&path)) {
        Some(Ok(own)) => {
            if let Some(difference) = differs(&own) {
                print_line(&format!(
                    "warning: --data: {difference}; if their tokens differ too, tokenize the text by that of the model"
                ));
            }
            return Ok(Some(own));
        }
        None | Some(Err(TokenizeError::NotBuilt { .. })) => {}
        Some(Err(error)) => return Err(error.into()),
    }
    // The file may have moved or changed since.
    let opened = recorded.and_then(|recorded| Tokenizer::open(recorded.name.as_ref()).ok());
    let opened = opened.filter(|tokenizer| differs(tokenizer).is_none());
    if let (Some(recorded), None, true) = (recorded, &opened, cfg!(feature = "tokenizers")) {
        print_line(&format!(
            "warning: --data: {} was made by the tokenizer {}, which is not there or has changed; samples and exports \
             are without it, unless --tokenizer names it",
            path.display(),
            recorded.name
        ));
    }
    Ok(opened)
}

/// Describes a `--tokenizer` that differs from that of the `--init-from` folder, whose ids the model knows.
pub fn warn_of_tokenizer(config: &Config, tokenizer: Option<&Tokenizer>) -> Option<String> {
    let path = tokenizer_of_model(config).filter(|_| config.tokenizer.is_some())?;
    let (given, own) = (tokenizer?.record(), Tokenizer::open(&path).ok()?.record());
    (!given.is_same(&own)).then(|| {
        format!(
            "--tokenizer: {given} differs from {own}, whose ids the model of --init-from has learned; leave \
             --tokenizer out to use that one"
        )
    })
}

/// Returns the `tokenizer.json` of the `--init-from` folder, if there is one.
fn tokenizer_of_model(config: &Config) -> Option<PathBuf> {
    let ModelSource::InitFrom(folder) = &config.model else { return None };
    Some(folder.join("tokenizer.json")).filter(|path| path.exists())
}

/// Tokenizes text, and shows the progress. `--documents` states the token after each record.
fn tokenize(
    input: DataInput,
    tokenizer: &Tokenizer,
    config: &Config,
    vocab: usize,
) -> Result<TokenFile> {
    let name = input.path().display().to_string();
    let len = input.regular_file().and_then(|file| Some(file.metadata().ok()?.len()));
    let mut documents = TextDocuments::default();
    documents.record_end = config.documents.map(|options| vec![options.end]);
    if let Some(key) = &config.text_key {
        documents.key.clone_from(key);
    }
    let mut progress = TokenizeProgress::new(len);
    let mut show = |bytes| progress.show_progress(bytes);
    let done = tokenize_input(tokenizer, input, &documents, vocab, &mut show);
    progress.finish();
    match done {
        Ok((file, encoded)) => {
            describe_records(&name, &encoded, tokenizer);
            Ok(file)
        }
        Err(TokenizeError::File(problem)) => Err(DataError::File(problem).into()),
        Err(TokenizeError::Read { name, source }) => {
            Err(DataError::Io { path: name.into(), source }.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Prints how the documents of a file of records are separated.
fn describe_records(name: &str, encoded: &Encoded, tokenizer: &Tokenizer) {
    let Some(end) = &encoded.record_end else { return };
    let ids: Vec<String> = end.iter().map(ToString::to_string).collect();
    let after = match &end[..] {
        [] => "nothing".to_owned(),
        end => format!("token {} ({:?})", ids.join(" "), tokenizer.decode(end)),
    };
    let documents = with_commas(encoded.documents);
    print_line(&format!("{documents} documents of {name}, with {after} after each"));
}

/// Returns the project's own book, the text of a run without `--data`. It is plain prose, so a minute of training has a
/// visible effect.
pub fn own_text() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    ["README.md", "book/src"].map(|part| root.join(part)).into()
}

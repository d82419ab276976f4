//! The tokens of a run, and the tokenizer that decodes them.

use std::path::{Path, PathBuf};

use crate::checkpoint::hf::SideFiles;
use crate::data::{
    DataError, Dataset, TokenFile, TokenizeError, TokenizeProgress, Tokenizer, read_corpus,
    tokenize_text,
};
use crate::train::config::{Config, ModelSource};
use crate::train::{Error, Result};
use meshwright_store::__internal::open_data;

/// Opens the tokens at `path`, by default of the project's own text, and `--tokenizer` for a model with `vocab` token
/// ids, and the tokenizer that decodes them, if known.
pub fn open_dataset(
    config: &Config,
    path: Option<&Path>,
    vocab: usize,
) -> Result<(TokenFile, Option<Tokenizer>)> {
    if let Some(path) = path.filter(|path| is_token_file(path)) {
        return Ok((TokenFile::open(path, vocab)?, choose_decoder(config)?));
    }
    let tokenizer = choose_tokenizer(config)?;
    // The vocabulary of a folder is given, and its tokenizer may have ids that no text uses.
    let ids = tokenizer.vocab();
    if matches!(config.model, ModelSource::New(_)) && !tokenizer.is_bytes() && ids > vocab {
        let tokenizer = tokenizer.name().to_owned();
        return Err(DataError::WideTokenizer { tokenizer, ids, vocab }.into());
    }
    let file = match (path, tokenizer.is_bytes()) {
        (Some(path), true) => TokenFile::open(path, vocab)?,
        (Some(path), false) => tokenize_file(path, &tokenizer, vocab)?,
        (None, is_bytes) => {
            let (text, name) = (read_corpus(&own_text())?, "the project's own text");
            if is_bytes {
                TokenFile::from_text(text, vocab, name)?
            } else {
                tokenize_text(&tokenizer, text.as_slice(), name, vocab, &mut |_| ())?
            }
        }
    };
    Ok((file, Some(tokenizer)))
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

/// Returns the tokenizer that decodes the ids of a `.bin` file. A program without support for tokenizer files ignores
/// that of the `--init-from` folder rather than refusing to train.
fn choose_decoder(config: &Config) -> Result<Option<Tokenizer>> {
    if config.tokenizer.is_some() {
        return choose_tokenizer(config).map(Some);
    }
    match tokenizer_of_model(config).map(|path| Tokenizer::open(&path)) {
        Some(Ok(tokenizer)) => Ok(Some(tokenizer)),
        None | Some(Err(TokenizeError::NotBuilt { .. })) => Ok(None),
        Some(Err(error)) => Err(error.into()),
    }
}

/// Returns the `tokenizer.json` of the `--init-from` folder, if there is one.
fn tokenizer_of_model(config: &Config) -> Option<PathBuf> {
    let ModelSource::InitFrom(folder) = &config.model else { return None };
    Some(folder.join("tokenizer.json")).filter(|path| path.exists())
}

/// Tokenizes text, and shows the progress.
fn tokenize_file(path: &Path, tokenizer: &Tokenizer, vocab: usize) -> Result<TokenFile> {
    let io = |source| DataError::Io { path: path.to_owned(), source };
    let file = open_data(path)?;
    let metadata = file.file().metadata().map_err(io)?;
    let mut progress = TokenizeProgress::new(metadata.is_file().then_some(metadata.len()));
    let name = path.display().to_string();
    let tokens =
        tokenize_text(tokenizer, file, &name, vocab, &mut |bytes| progress.show_progress(bytes));
    progress.finish();
    Ok(tokens?)
}

fn is_token_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "bin")
}

/// Returns the project's own book, the text of a run without `--data`. It is plain prose, so a minute of training has a
/// visible effect.
pub fn own_text() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    ["README.md", "book/src"].map(|part| root.join(part)).into()
}

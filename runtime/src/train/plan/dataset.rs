//! Which tokens a run trains on, and what turns them into text again.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::data::{
    DataError, TokenFile, TokenizeError, TokenizeProgress, Tokenizer, read_corpus, tokenize_text,
};

use crate::train::Result;
use crate::train::config::{Config, ModelSource};

/// What `--data` and `--tokenizer` mean for a model with `vocab` token ids: the tokens, and what they are decoded with,
/// if that is known.
pub fn open(config: &Config, vocab: usize) -> Result<(TokenFile, Option<Tokenizer>)> {
    if let Some(path) = config.data.as_deref().filter(|path| is_token_file(path)) {
        return Ok((TokenFile::open(path, vocab)?, decoder(config)?));
    }
    let tokenizer = tokenizer(config)?;
    let file = match (&config.data, tokenizer.is_bytes()) {
        (Some(path), true) => TokenFile::open(path, vocab)?,
        (Some(path), false) => tokenize_file(path, &tokenizer, vocab)?,
        (None, is_bytes) => {
            let (text, name) = (read_corpus(&own_text())?, "the project's own text");
            match is_bytes {
                true => TokenFile::from_text(text, vocab, name)?,
                false => tokenize_text(&tokenizer, text.as_slice(), name, vocab, &mut |_| ())?,
            }
        }
    };
    Ok((file, Some(tokenizer)))
}

/// What text is tokenised with: `--tokenizer`, else that of the `--init-from` folder, else bytes.
fn tokenizer(config: &Config) -> Result<Tokenizer> {
    match config.tokenizer.clone().or_else(|| tokenizer_of_model(config)) {
        Some(path) => Ok(Tokenizer::open(&path).map_err(DataError::from)?),
        None => Ok(Tokenizer::Bytes),
    }
}

/// What the ids of a `.bin` file are decoded with. That a program without tokenizer files cannot use the one that
/// happens to lie in the `--init-from` folder is no reason to refuse to train.
fn decoder(config: &Config) -> Result<Option<Tokenizer>> {
    if config.tokenizer.is_some() {
        return tokenizer(config).map(Some);
    }
    match tokenizer_of_model(config).map(|path| Tokenizer::open(&path)) {
        Some(Ok(tokenizer)) => Ok(Some(tokenizer)),
        None | Some(Err(TokenizeError::NotBuilt { .. })) => Ok(None),
        Some(Err(error)) => Err(DataError::from(error).into()),
    }
}

/// The `tokenizer.json` of the `--init-from` folder.
fn tokenizer_of_model(config: &Config) -> Option<PathBuf> {
    let ModelSource::InitFrom(folder) = &config.model else { return None };
    Some(folder.join("tokenizer.json")).filter(|path| path.exists())
}

/// Tokenises text, and shows how far it has come.
fn tokenize_file(
    path: &Path,
    tokenizer: &Tokenizer,
    vocab: usize,
) -> std::result::Result<TokenFile, DataError> {
    let io = |source| DataError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    let mut progress = TokenizeProgress::new(metadata.is_file().then_some(metadata.len()));
    let name = path.display().to_string();
    let tokens = tokenize_text(tokenizer, file, &name, vocab, &mut |bytes| progress.show(bytes));
    progress.finish();
    tokens
}

fn is_token_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "bin")
}

/// The project's own book, the text of a run without `--data`: plain words, so that a minute of training shows.
fn own_text() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    ["README.md", "book/src"].map(|part| root.join(part)).into()
}

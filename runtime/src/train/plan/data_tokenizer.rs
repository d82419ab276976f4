//! The tokenizer of the data of a run.

use std::path::{Path, PathBuf};

use crate::checkpoint::hf::SideFiles;
use crate::data::{DataError, DataInput, TokenFile, TokenizeError, Tokenizer};
use crate::train::config::{Config, ModelSource};
use crate::train::console::print_shared;
use crate::train::{Error, Result};

/// Returns the tokenizer of text for a model with `vocab` token ids; `text` is one of the files.
pub fn choose_text_tokenizer(config: &Config, text: &DataInput, vocab: usize) -> Result<Tokenizer> {
    let tokenizer = choose_tokenizer(config)?;
    // The vocabulary of a file is given, and its tokenizer may have ids that no text uses.
    let ids = tokenizer.vocab();
    if matches!(config.model, ModelSource::New(_)) && !tokenizer.is_bytes() && ids > vocab {
        let tokenizer = tokenizer.name().to_owned();
        return Err(DataError::WideTokenizer { tokenizer, ids, vocab }.into());
    }
    if tokenizer.is_bytes() && vocab < 256 {
        let name = text.path().display().to_string();
        return Err(DataError::SmallVocabulary { name, vocab }.into());
    }
    Ok(tokenizer)
}

/// Returns the tokenizer of text: `--tokenizer`, else that of the `--init-from` folder, and bytes for a new model.
fn choose_tokenizer(config: &Config) -> Result<Tokenizer> {
    match (config.tokenizer.clone().or_else(|| tokenizer_of_model(config)), &config.model) {
        (Some(path), _) => Ok(Tokenizer::open(&path)?),
        (None, ModelSource::InitFrom(folder)) => Err(refuse_bytes(folder)),
        (None, ModelSource::Architecture(_) | ModelSource::New(_)) => Ok(Tokenizer::Bytes),
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

/// Returns the tokenizer that decodes the ids of `file`: the one that is given, that of the `--init-from`
/// folder, or the one that is recorded beside the file. A program without support for tokenizer files ignores those
/// that are not given rather than refusing to train.
pub fn choose_decoder(config: &Config, file: &TokenFile) -> Result<Option<Tokenizer>> {
    let path = file.name();
    let recorded = file.tokenizer();
    let differs = |tokenizer: &Tokenizer| {
        recorded.filter(|recorded| !recorded.is_same(&tokenizer.record())).map(|recorded| {
            let own = tokenizer.record();
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
                print_shared(&format!(
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
        print_shared(&format!(
            "warning: --data: {} was made by the tokenizer {}, which is not there or has changed; samples and exports \
             are without it, unless --tokenizer names it",
            path, recorded.name
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
pub fn tokenizer_of_model(config: &Config) -> Option<PathBuf> {
    let ModelSource::InitFrom(folder) = &config.model else { return None };
    Some(folder.join("tokenizer.json")).filter(|path| path.exists())
}

/// Checks that the ids of all files are of one tokenizer, as far as these are known.
pub fn check_one_tokenizer(files: &[TokenFile]) -> Result<()> {
    let known = |file: &TokenFile| Some((file.name().to_owned(), file.tokenizer()?.clone()));
    let Some((name, tokenizer)) = files.iter().find_map(known) else { return Ok(()) };
    for file in files {
        match file.tokenizer() {
            Some(own) if !own.is_same(&tokenizer) => {
                return Err(Error::Input(format!(
                    "--data: {} has tokens of {own}, but {name} of {tokenizer}; use data of one tokenizer",
                    file.name()
                )));
            }
            Some(_) => {}
            None => {
                print_shared(&format!(
                    "warning: --data: the token ids of {} have to be of the tokenizer of {name}, {tokenizer}; the file \
                     does not say so",
                    file.name()
                ));
                return Ok(());
            }
        }
    }
    Ok(())
}

//! The validation data of a run, and the evaluations that it begins with.

use std::path::Path;
use std::sync::Arc;

use crate::checkpoint::{Checkpoint, EvaluationRecord};
use crate::data::{Batch, DataError, DataPosition, Dataset, TokenFile, Tokenizer};
use crate::train::config::{Config, ValidationConfig};
use crate::train::console::{print_line, with_commas};
use crate::train::{Error, Result};

use super::dataset::open_dataset;

/// The rows that the run evaluates, the same each time.
pub struct Validation {
    /// The flag that names the data.
    pub flag: &'static str,
    pub dataset: Arc<Dataset>,
    /// Batches of an evaluation.
    pub batches: u64,
    /// Bytes of the text of the targets; `None` if they are not known.
    text: Option<TextBytes>,
    /// The evaluations before the run.
    pub record: EvaluationRecord,
}

/// Bytes of the text of all targets.
enum TextBytes {
    /// Each target is a byte.
    OfTargets,
    Counted(u64),
}

impl Validation {
    /// Opens the data of `--eval-data`, or takes that of `--eval-fraction` from the end of `file`. Returns the tokens
    /// to train on, too. `tokenizer` decodes the ids of `file`, and `vocab` is the vocabulary of the model.
    ///
    /// # Errors
    /// Data that cannot be read, of another tokenizer, or too short.
    pub fn open(
        config: &Config,
        file: TokenFile,
        (tokenizer, vocab): (Option<&Tokenizer>, usize),
    ) -> Result<(TokenFile, Option<Validation>)> {
        let (file, held_out) = match config.eval_fraction {
            Some(fraction) => {
                let [file, held_out] = hold_out(config, file, fraction)?;
                (file, Some(held_out))
            }
            None => (file, None),
        };
        let Some(settings) = &config.validation else { return Ok((file, None)) };
        let flag = if held_out.is_some() { "--eval-fraction" } else { "--eval-data" };
        let data = match (held_out, &settings.data) {
            (None, Some(path)) => {
                let opened = open_dataset(config, Some(path), vocab);
                let (data, _) = opened.map_err(Error::of_validation(flag))?;
                check_tokenizers(&file, &data, tokenizer)?;
                warn_of_training_data(config, path);
                data
            }
            (held_out, _) => held_out.expect("the rules have checked that validation has data"),
        };
        let validation = Validation::of_data(config, (flag, settings), data, tokenizer);
        Ok((file, Some(validation.map_err(Error::of_validation(flag))?)))
    }

    fn of_data(
        config: &Config,
        (flag, settings): (&'static str, &ValidationConfig),
        data: TokenFile,
        tokenizer: Option<&Tokenizer>,
    ) -> std::result::Result<Validation, DataError> {
        let dataset = Dataset::for_evaluation(data, config.seq, config.batch, config.documents)?;
        let batches =
            settings.steps.map_or(dataset.batches(), |steps| steps.min(dataset.batches()));
        let text = match tokenizer {
            None => None,
            Some(tokenizer) if tokenizer.is_bytes() => Some(TextBytes::OfTargets),
            Some(tokenizer) => {
                Some(TextBytes::Counted(decoded_bytes(&dataset, batches, tokenizer)?))
            }
        };
        let record = EvaluationRecord {
            data: DataPosition::after(batches, &dataset),
            step: 0,
            best: None,
            without_improvement: 0,
            is_only_best: false,
        };
        Ok(Validation { flag, dataset: Arc::new(dataset), batches, text, record })
    }

    /// Goes on from the evaluations of the saved run, if they are of the same rows.
    pub fn resume(&mut self, checkpoint: &Checkpoint) {
        match &checkpoint.manifest().state.evaluation {
            Some(saved) if saved.is_of(&self.record.data) => {
                // The data may have moved.
                let data = self.record.data.clone();
                self.record = EvaluationRecord { data, ..saved.clone() };
            }
            Some(_) => print_line(
                "warning: --resume: other rows are evaluated than in the saved run, so its lowest loss and its \
                 evaluations of --early-stop do not count",
            ),
            None => {}
        }
    }

    /// Returns the bits for each byte of text, of a sum of losses over `targets` in nats; `None` if the bytes are not
    /// known.
    pub fn bits_per_byte(&self, loss_sum: f64, targets: f64) -> Option<f64> {
        let bytes = match self.text.as_ref()? {
            TextBytes::OfTargets => targets,
            TextBytes::Counted(bytes) => *bytes as f64,
        };
        Some(loss_sum / std::f64::consts::LN_2 / bytes)
    }

    /// Describes the data, on a line of its own.
    pub fn describe(&self, settings: &ValidationConfig) -> String {
        let Validation { dataset, batches, .. } = self;
        let (every, all) = (settings.every, dataset.batches());
        let every = if every == 1 { "step".to_owned() } else { format!("{every} steps") };
        let some = if *batches < all { format!("{batches} of ") } else { String::new() };
        let (file, last) = (dataset.file(), if settings.data.is_none() { "last " } else { "" });
        format!(
            "\nvalidation every {every}: {some}{} of the {last}{} tokens of {}",
            if all == 1 { "1 batch".to_owned() } else { format!("{} batches", with_commas(all)) },
            with_commas(file.len() as u64),
            file.name()
        )
    }
}

/// Splits the tokens of a run into those that are trained on and the last ones, of `--eval-fraction`. Documents stay
/// whole.
fn hold_out(config: &Config, file: TokenFile, fraction: f64) -> Result<[TokenFile; 2]> {
    let tokens = file.len();
    let held_out = ((tokens as f64 * fraction).round() as usize).max(1);
    let mut at = tokens.saturating_sub(held_out);
    if let Some(documents) = config.documents {
        at = documents.first_start(&file, at)?.unwrap_or(tokens);
    }
    let packs = config.documents.is_some_and(|documents| documents.packs);
    let (least, advice) = if packs { (2, "") } else { (config.seq + 1, " or a shorter --seq") };
    if at >= least && tokens - at >= least {
        return Ok(file.split_at(at));
    }
    let [trained, held_out] = [at, tokens - at].map(|tokens| with_commas(tokens as u64));
    let whole = if config.documents.is_some() { ", in whole documents," } else { "" };
    Err(Error::Input(format!(
        "--eval-fraction: {fraction} of the {} tokens of {}{whole} leaves {held_out} for validation and {trained} for \
         training, and each needs {least}; use another fraction, more data{advice}",
        with_commas(tokens as u64),
        file.name()
    )))
}

/// Checks that the ids of both files are of one tokenizer, as far as these are known; `tokenizer` is that of ids whose
/// file names none.
fn check_tokenizers(
    trained: &TokenFile,
    evaluated: &TokenFile,
    tokenizer: Option<&Tokenizer>,
) -> Result<()> {
    let name = evaluated.name();
    let known = trained.tokenizer().cloned().or_else(|| tokenizer.map(Tokenizer::record));
    match (known, evaluated.tokenizer()) {
        (Some(known), Some(own)) if !known.is_same(own) => Err(Error::Input(format!(
            "--eval-data: {name} has tokens of {own}, but --data of {known}; use data of one tokenizer"
        ))),
        (None, Some(own)) => Err(Error::Input(format!(
            "--eval-data: {name} is text, read by {own}, but --data has token ids of an unknown tokenizer; name it by \
             --tokenizer FILE.json, or give token ids"
        ))),
        (Some(known), None) if trained.tokenizer().is_some() => {
            print_line(&format!(
                "warning: --eval-data: the token ids of {name} have to be of the tokenizer of --data, {known}; the \
                 file does not say so"
            ));
            Ok(())
        }
        _ => Ok(()),
    }
}

fn warn_of_training_data(config: &Config, path: &Path) {
    let real = |path: &Path| path.canonicalize().ok();
    if config.data.as_deref().and_then(real).is_some_and(|data| real(path) == Some(data)) {
        print_line(
            "warning: --eval-data: it is also the file of --data, so the validation loss is that of rows which are \
             trained on; --eval-fraction 0.1 holds out its end",
        );
    }
}

/// Returns the bytes of the text of the targets that count.
fn decoded_bytes(
    dataset: &Dataset,
    batches: u64,
    tokenizer: &Tokenizer,
) -> std::result::Result<u64, DataError> {
    let rows = 0..dataset.sampler().batch();
    (0..batches)
        .map(|step| {
            let mut targets = dataset.rows(step, rows.clone())?.targets;
            targets.retain(|target| *target != Batch::IGNORED);
            Ok(tokenizer.decode(&targets).len() as u64)
        })
        .sum()
}

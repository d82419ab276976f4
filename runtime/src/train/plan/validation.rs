//! The validation data of a run, and the evaluations that it begins with.

use std::path::Path;
use std::sync::Arc;

use crate::checkpoint::{Checkpoint, EvaluationRecord};
use crate::data::{
    Batch, DataError, DataPosition, DataSource, Dataset, TokenFile, Tokenizer, is_remote,
};
use crate::train::config::{Config, ValidationConfig};
use crate::train::console::{counted_with_commas, print_shared, with_commas};
use crate::train::task::AnyTask;
use crate::train::{Error, Result, Task};

use super::data_list::DataList;
use super::dataset::open_sources;
use super::task_data::open_validation_examples;

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
    /// Opens the data of `--eval-data`, or takes that of `--eval-fraction` from the end of each source. Returns the
    /// sources to train on, too. `tokenizer` decodes their ids, and `vocab` is the vocabulary of the model.
    ///
    /// # Errors
    /// Data that cannot be read, of another tokenizer, or too short.
    pub fn open<T: Task>(
        config: &Config,
        task: &AnyTask,
        sources: Vec<DataSource>,
        (tokenizer, vocab): (Option<&Tokenizer>, usize),
    ) -> Result<(Vec<DataSource>, Option<Validation>)> {
        let (sources, held_out) = match config.eval_fraction {
            // There is nothing to hold out.
            Some(_) if config.has_synthetic_data() => return Ok((sources, None)),
            Some(fraction) => {
                let (sources, held_out) = hold_out(config, sources, fraction)?;
                (sources, Some(held_out))
            }
            None => (sources, None),
        };
        let Some(settings) = &config.validation else { return Ok((sources, None)) };
        let flag = if held_out.is_some() { "--eval-fraction" } else { "--eval-data" };
        let data = match (held_out, &settings.data) {
            (None, Some(path)) if !T::READS_TOKENS => {
                open_validation_examples::<T>(config, task, path)?
            }
            (None, Some(text)) => {
                let data = open_data(config, text, vocab)?;
                if let (Some(trained), Some(evaluated)) =
                    (sources[0].files.first(), data.files.first())
                {
                    check_tokenizers(trained, evaluated, tokenizer)?;
                }
                warn_of_training_data(&sources, &data);
                data
            }
            (held_out, _) => held_out.expect("the rules have checked that validation has data"),
        };
        let validation = Validation::of_data(config, (flag, settings), data, tokenizer);
        Ok((sources, Some(validation.map_err(Error::of_validation(flag))?)))
    }

    fn of_data(
        config: &Config,
        (flag, settings): (&'static str, &ValidationConfig),
        data: DataSource,
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
            data: DataPosition::after(batches, &dataset)?,
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
            Some(_) => print_shared(
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
        let last = if settings.data.is_none() { "last " } else { "" };
        format!(
            "\nvalidation every {every}: {some}{} of the {last}{} of {}",
            if all == 1 { "1 batch".to_owned() } else { format!("{} batches", with_commas(all)) },
            match dataset.streams() {
                Some(_) => counted_with_commas(dataset.rows_of_epoch() as usize, "example"),
                None => format!("{} tokens", with_commas(dataset.tokens() as u64)),
            },
            dataset.name()
        )
    }
}

/// Opens the data of `--eval-data`.
fn open_data(config: &Config, text: &Path, vocab: usize) -> Result<DataSource> {
    let flag = "--eval-data";
    let list = DataList::read(flag, text)?;
    if list.is_mixture {
        return Err(Error::Input(format!(
            "{flag}: the sources of {} have weights, but an evaluation reads each target once; name the files without \
             weights",
            text.display()
        )));
    }
    let opened = open_sources(config, Some(list), vocab);
    let (mut sources, _) = opened.map_err(Error::of_validation(flag))?;
    Ok(sources.swap_remove(0))
}

/// Splits the tokens of each source into those that are trained on and the last ones, of `--eval-fraction`, which are
/// returned as one source. Documents stay whole.
fn hold_out(
    config: &Config,
    sources: Vec<DataSource>,
    fraction: f64,
) -> Result<(Vec<DataSource>, DataSource)> {
    let name = sources.iter().map(|source| &*source.name).collect::<Vec<_>>().join(", ");
    let (mut trained, mut held_out) = (Vec::new(), Vec::new());
    for source in sources {
        let (source, files) = hold_out_of_source(config, source, fraction)?;
        trained.push(source);
        held_out.extend(files);
    }
    let held_out = DataSource::of_files(name, held_out);
    Ok((trained, held_out))
}

/// Splits the files of a source: whole files, and the one in which the border is.
fn hold_out_of_source(
    config: &Config,
    source: DataSource,
    fraction: f64,
) -> Result<(DataSource, Vec<TokenFile>)> {
    let tokens = source.tokens();
    let held_out = ((tokens as f64 * fraction).round() as usize).max(1);
    let mut left = tokens.saturating_sub(held_out);
    let DataSource { name, files, weight, order, .. } = source;
    let (mut trained, mut last) = (Vec::new(), Vec::new());
    for file in files {
        let len = file.len();
        let mut at = left.min(len);
        if let (Some(documents), true) = (config.documents, 0 < at && at < len) {
            at = documents.first_start(&file, at)?.unwrap_or(len);
        }
        left -= left.min(len);
        match at {
            0 => last.push(file),
            at if at < len => {
                let [before, after] = file.split_at(at);
                trained.push(before);
                last.push(after);
            }
            _ => trained.push(file),
        }
    }
    let packs = config.documents.is_some_and(|documents| documents.packs);
    let (least, advice) = if packs { (2, "") } else { (config.seq + 1, " or a shorter --seq") };
    let suffices = |files: &[TokenFile]| files.iter().any(|file| file.len() >= least);
    if suffices(&trained) && suffices(&last) {
        let trained = DataSource::of_files(name, trained);
        return Ok((DataSource { weight, order, ..trained }, last));
    }
    let count =
        |files: &[TokenFile]| with_commas(files.iter().map(TokenFile::len).sum::<usize>() as u64);
    let [trained, held_out] = [&trained, &last].map(|files| count(files));
    let whole = if config.documents.is_some() { ", in whole documents," } else { "" };
    Err(Error::Input(format!(
        "--eval-fraction: {fraction} of the {} tokens of {name}{whole} leaves {held_out} for validation and {trained} \
         for training, and each needs {least}; use another fraction, more data{advice}",
        with_commas(tokens as u64),
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
            print_shared(&format!(
                "warning: --eval-data: the token ids of {name} have to be of the tokenizer of --data, {known}; the \
                 file does not say so"
            ));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Warns of files that are trained on, too.
fn warn_of_training_data(sources: &[DataSource], data: &DataSource) {
    let real = |file: &TokenFile| {
        let path = Path::new(file.name());
        if is_remote(path) { Some(path.to_owned()) } else { path.canonicalize().ok() }
    };
    let trained: Vec<_> =
        sources.iter().flat_map(|source| &source.files).filter_map(real).collect();
    let is_trained = |file: &&TokenFile| real(file).is_some_and(|path| trained.contains(&path));
    if let Some(file) = data.files.iter().find(is_trained) {
        let which = match (&trained[..], &data.files[..]) {
            ([_], [_]) => "it is also the file of --data".to_owned(),
            _ => format!("{} is also a file of --data", file.name()),
        };
        print_shared(&format!(
            "warning: --eval-data: {which}, so the validation loss is that of rows which are trained on; \
             --eval-fraction 0.1 holds out its end"
        ));
    }
}

/// Returns the bytes of the text of the targets that count.
fn decoded_bytes(
    dataset: &Dataset,
    batches: u64,
    tokenizer: &Tokenizer,
) -> std::result::Result<u64, DataError> {
    let rows = 0..dataset.batch();
    (0..batches)
        .map(|step| {
            let mut targets = dataset.rows(step, rows.clone())?.targets;
            targets.retain(|target| *target != Batch::IGNORED);
            Ok(tokenizer.decode(&targets).len() as u64)
        })
        .sum()
}

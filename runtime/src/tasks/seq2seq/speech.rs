//! Speech to text: predicts the text of a clip of sound.

use serde_json::{Map, Value};

use crate::data::{Example, Field, RowStreams, RowWriter, file_bytes, read_preprocessing};
use crate::models::whisper::{
    Batch, LogMel, Target, TargetStream, Whisper, WhisperConfig, WhisperInput, read_wav,
};
use crate::tensor::{Loss, Targets};
use crate::train::{Rows, Task, TaskSetup};

use super::targets::{add_targets, write_targets};
use super::texts::Texts;

/// Predicts the field `text` of each example from its field `sound`, as `WhisperForConditionalGeneration` of
/// `transformers` does: the decoder reads the text one position later, behind `decoder_start_token_id`.
///
/// `sound` is the path of a WAV file, its bytes, or a list of samples in -1 to 1: mono sound at 16 kHz. Clips are
/// padded with silence to the length of the model, 30 seconds by default.
#[derive(Debug)]
pub struct SpeechToText {
    texts: Texts,
    log_mel: LogMel,
    /// Frames and bins of a spectrogram.
    sizes: [usize; 2],
    /// Positions of texts.
    seq: usize,
    /// Written before each text.
    before: String,
    padding: u32,
    start: u32,
}

/// Flags of texts from speech.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SpeechFlags {
    /// Tokens before each text, which are predicted too, such as '<|en|><|transcribe|><|notimestamps|>'
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub before_text: String,
    /// Cut longer texts and clips, rather than refuse them
    #[arg(long)]
    pub cut_texts: bool,
}

impl Task for SpeechToText {
    type Model = Whisper;
    type Extra = Targets<(Batch, Target)>;
    type Over = (Batch, Target);
    type Flags = SpeechFlags;
    const NAME: &'static str = "speech";

    fn open(setup: &TaskSetup<'_, WhisperConfig, SpeechFlags>) -> Result<SpeechToText, String> {
        let (family, flags, seq) = (setup.family(), setup.flags(), setup.seq());
        let texts = Texts::open(setup.tokenizer()?, family.vocab, &family.eos)?;
        let frames = 2 * family.source_positions;
        if let Some(folder) = setup.model_folder() {
            read_preprocessing(folder, |keys| check_preprocessing(keys, frames, family.mels))?;
        }
        // They are checked when the configuration is read.
        let start = family.start as u32;
        Ok(SpeechToText {
            texts: texts.cutting(flags.cut_texts),
            log_mel: LogMel::new(family.mels, frames),
            sizes: [frames, family.mels],
            seq,
            before: flags.before_text.clone(),
            padding: family.padding.map_or(start, |id| id as u32),
            start,
        })
    }

    fn positions(&self, path: &str, seq: usize) -> [usize; 2] {
        Whisper::positions(path, [self.sizes[0] / 2, seq])
    }

    fn streams(&self) -> RowStreams {
        add_targets(RowStreams::new().values("sound", &self.sizes), self.seq, self.texts.vocab())
    }

    fn row(&self, example: &Example, _key: u64, row: &mut RowWriter<'_>) -> Result<(), String> {
        let sound = samples_of(example)?;
        let most = self.log_mel.samples();
        if sound.len() > most && !self.texts.is_cutting() {
            return Err(format!(
                "`sound` has {} samples, and the model takes {most}: divide it, or cut longer clips by `--cut-texts`",
                sound.len()
            ));
        }
        row.values("sound").copy_from_slice(&self.log_mel.compute(&sound));
        let text = example.text("text")?;
        let target = self.texts.ids_behind(&self.before, text, "text", self.seq, "--seq")?;
        write_targets(row, &target, [self.start, self.padding]);
        Ok(())
    }

    fn input(&self, rows: &Rows<'_>) -> (WhisperInput, Self::Extra) {
        ((rows.tensor("sound"), rows.tokens("read")), rows.tokens("target"))
    }

    fn loss(
        &self,
        model: &Whisper,
        output: &TargetStream,
        targets: &Self::Extra,
    ) -> Loss<Self::Over> {
        model.loss_of_output(output, targets)
    }
}

/// Checks the keys of a `preprocessor_config.json`: they state the spectrograms that are computed here.
fn check_preprocessing(
    keys: &Map<String, Value>,
    frames: usize,
    mels: usize,
) -> Result<(), String> {
    let seconds = frames as f64 * LogMel::HOP as f64 / LogMel::RATE as f64;
    let wanted = [
        ("hop_length", LogMel::HOP as f64),
        ("n_fft", LogMel::WINDOW as f64),
        ("sampling_rate", LogMel::RATE as f64),
        ("feature_size", mels as f64),
        ("chunk_length", seconds),
        ("dither", 0.0),
        ("padding_value", 0.0),
    ];
    for (key, wanted) in wanted {
        let found = keys.get(key).filter(|found| !found.is_null());
        if let Some(found) = found.filter(|found| found.as_f64() != Some(wanted)) {
            return Err(format!("{key} is {found}; only {wanted} is supported here"));
        }
    }
    match keys.get("do_normalize") {
        None | Some(Value::Null | Value::Bool(false)) => Ok(()),
        Some(found) => Err(format!("do_normalize is {found}; only false is supported")),
    }
}

/// Returns the samples of the field `sound`.
fn samples_of(example: &Example) -> Result<Vec<f32>, String> {
    let Field::List(samples) = example.field("sound")? else {
        let (bytes, name) = file_bytes(example, "sound")?;
        return read_wav(&bytes).map_err(|problem| format!("{name} {problem}"));
    };
    let sample = |field: &Field| match field {
        Field::Number(number) if number.abs() <= 1.0 => Ok(*number as f32),
        Field::Integer(number) if (-1..=1).contains(number) => Ok(*number as f32),
        _ => Err("`sound` has samples that are no numbers in -1 to 1".to_owned()),
    };
    samples.iter().map(sample).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn other_spectrograms_are_refused() {
        let check = |keys: Value| check_preprocessing(keys.as_object().unwrap(), 3000, 80);
        let file = json!({ "hop_length": 160, "n_fft": 400, "sampling_rate": 16000, "feature_size": 80,
            "chunk_length": 30, "dither": 0.0, "do_normalize": false, "padding_side": "right" });
        assert_eq!(check(file), Ok(()));
        assert_eq!(check(json!({})), Ok(()));
        for (keys, message) in [
            (json!({ "hop_length": 100 }), "hop_length is 100; only 160 is supported here"),
            (json!({ "chunk_length": 10 }), "chunk_length is 10; only 30 is supported here"),
            (json!({ "feature_size": 128 }), "feature_size is 128; only 80 is supported here"),
            (json!({ "do_normalize": true }), "do_normalize is true; only false is supported"),
        ] {
            assert_eq!(check(keys), Err(message.to_owned()));
        }
    }
}

//! Inputs, losses and logits of the models of the cases.

use meshwright::layout::Shape;
use meshwright::models::t5::{self, SourcePadding, T5, T5Config};
use meshwright::models::whisper::{self, Whisper, WhisperConfig};
use meshwright::nn::Module;
use meshwright::tensor::{Loss, Rank, Targets, Tensor, Tokens};
use meshwright::train::FamilyModel;

use super::Case;

/// A model with a step of a case as its input.
pub trait EncoderDecoder: FamilyModel<Config: Sync> {
    /// The dims that the loss averages over.
    type Over: Shape;

    /// Returns input and targets of a step.
    fn step(
        case: &Case,
        config: &Self::Config,
        rank: &Rank,
        step: usize,
    ) -> (<Self as Module>::In, Targets<Self::Over>);

    /// Returns the loss of an output.
    fn loss(&self, x: &Self::Out, targets: &Targets<Self::Over>) -> Loss<Self::Over>;

    /// Returns the logits of an output.
    fn logits(&self, x: &Self::Out) -> Vec<f32>;
}

/// Returns the targets of a step, and the ids that the decoder reads: the targets one position later, behind `start`,
/// and with `padding` for those that are ignored.
fn shifted<S: Shape>(
    case: &Case,
    rank: &Rank,
    step: usize,
    [start, padding]: [usize; 2],
) -> (Tokens<S>, Targets<S>) {
    let (batch, labels) = (case.number("batch") as usize, &case.ids["labels"]);
    let seq = labels.len() / batch / case.number("steps") as usize;
    let label = |row: usize, position: usize| labels[(step * batch + row) * seq + position];
    let read = |index: &[usize]| match index[1].checked_sub(1).map(|before| label(index[0], before))
    {
        None => start as u32,
        Some(Targets::<S>::IGNORED) => padding as u32,
        Some(id) => id,
    };
    let targets = Targets::from_fn(rank, &[batch, seq], |index| label(index[0], index[1]));
    (Tokens::from_fn(rank, &[batch, seq], read), targets)
}

impl EncoderDecoder for T5 {
    type Over = (t5::Batch, t5::Target);

    fn step(
        case: &Case,
        config: &T5Config,
        rank: &Rank,
        step: usize,
    ) -> (t5::T5Input, Targets<Self::Over>) {
        let (batch, ids) = (case.number("batch") as usize, &case.ids["input_ids"]);
        let len = ids.len() / batch / case.number("steps") as usize;
        let row = |row: usize| (step * batch + row) * len..(step * batch + row + 1) * len;
        let source = Tokens::from_fn(rank, &[batch, len], |index| ids[row(index[0])][index[1]]);
        let mask = &case.ids["attention_mask"];
        let lengths = Tokens::from_fn(rank, &[batch], |index| mask[row(index[0])].iter().sum());
        let (target, targets) = shifted(case, rank, step, [config.start, config.padding]);
        ((source, target, SourcePadding::of_lengths(&lengths)), targets)
    }

    fn loss(&self, x: &t5::TargetStream, targets: &Targets<Self::Over>) -> Loss<Self::Over> {
        self.loss_of_output(x, targets)
    }

    fn logits(&self, x: &t5::TargetStream) -> Vec<f32> {
        self.logits_of_output(x).to_local_vec()
    }
}

impl EncoderDecoder for Whisper {
    type Over = (whisper::Batch, whisper::Target);

    fn step(
        case: &Case,
        config: &WhisperConfig,
        rank: &Rank,
        step: usize,
    ) -> (whisper::WhisperInput, Targets<Self::Over>) {
        let (batch, mels) = (case.number("batch") as usize, config.mels);
        let (values, frames) = (&case.floats["input_features"], 2 * config.source_positions);
        let at =
            |index: &[usize]| ((step * batch + index[0]) * mels + index[2]) * frames + index[1];
        let sound = Tensor::from_fn(rank, &[batch, frames, mels], |index| values[at(index)]);
        let padding = config.padding.expect("the case has one");
        let (target, targets) = shifted(case, rank, step, [config.start, padding]);
        ((sound, target), targets)
    }

    fn loss(&self, x: &whisper::TargetStream, targets: &Targets<Self::Over>) -> Loss<Self::Over> {
        self.loss_of_output(x, targets)
    }

    fn logits(&self, x: &whisper::TargetStream) -> Vec<f32> {
        self.logits_of_output(x).to_local_vec()
    }
}

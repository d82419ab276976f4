//! Sequence to sequence: predicts a text from another one.

use crate::data::{Example, RowStreams, RowWriter};
use crate::models::t5::{Batch, SourcePadding, T5, T5Config, T5Input, Target, TargetStream};
use crate::tensor::{Loss, Targets, Tokens};
use crate::train::{Rows, Task, TaskSetup};

use super::targets::{add_targets, write_targets};
use super::texts::Texts;

/// Predicts the text `target` of each example from its text `source`, as `T5ForConditionalGeneration` of `transformers`
/// does: the decoder reads the target one position later, behind `decoder_start_token_id`.
///
/// Both texts end with `eos_token_id`, and rows are filled up behind them: no query sees a source beyond its end, and
/// targets beyond the end of a text are ignored.
#[derive(Debug)]
pub struct Seq2Seq {
    texts: Texts,
    /// Positions of sources and of targets.
    sizes: [usize; 2],
    padding: u32,
    start: u32,
}

/// Flags of texts from texts.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Seq2SeqFlags {
    /// Tokens of each source, filled up behind the end of a text; by default --seq, the tokens of each target
    #[arg(long, value_name = "TOKENS")]
    pub source_seq: Option<usize>,
    /// Cut longer texts, rather than refuse them
    #[arg(long)]
    pub cut_texts: bool,
}

/// Name of the flag of sources.
const SOURCE_SEQ: &str = "--source-seq";

impl Task for Seq2Seq {
    type Model = T5;
    type Extra = Targets<(Batch, Target)>;
    type Over = (Batch, Target);
    type Flags = Seq2SeqFlags;
    const NAME: &'static str = "seq2seq";

    fn open(setup: &TaskSetup<'_, T5Config, Seq2SeqFlags>) -> Result<Seq2Seq, String> {
        let (family, flags) = (setup.family(), setup.flags());
        let texts = Texts::open(setup.tokenizer()?, family.vocab, &family.eos)?;
        let source = flags.source_seq.unwrap_or(setup.seq());
        if source == 0 {
            return Err(format!("{SOURCE_SEQ}: a source has at least one token, not 0"));
        }
        // They are checked when the configuration is read.
        let [padding, start] = [family.padding, family.start].map(|id| id as u32);
        let texts = texts.cutting(flags.cut_texts);
        Ok(Seq2Seq { texts, sizes: [source, setup.seq()], padding, start })
    }

    fn positions(&self, path: &str, seq: usize) -> [usize; 2] {
        T5::positions(path, [self.sizes[0], seq])
    }

    fn streams(&self) -> RowStreams {
        let ([source, target], vocab) = (self.sizes, self.texts.vocab());
        let streams =
            RowStreams::new().ids("source", &[source], vocab).ids("length", &[], source + 1);
        add_targets(streams, target, vocab)
    }

    fn row(&self, example: &Example, _key: u64, row: &mut RowWriter<'_>) -> Result<(), String> {
        let [most, seq] = self.sizes;
        let source = self.texts.ids(example, "source", most, SOURCE_SEQ)?;
        let target = self.texts.ids(example, "target", seq, "--seq")?;
        row.ids("length").fill(source.len() as u32);
        let ids = row.ids("source");
        ids[..source.len()].copy_from_slice(&source);
        ids[source.len()..].fill(self.padding);
        write_targets(row, &target, [self.start, self.padding]);
        Ok(())
    }

    fn input(&self, rows: &Rows<'_>) -> (T5Input, Self::Extra) {
        let lengths: Tokens<(Batch,)> = rows.tokens("length");
        let padding = SourcePadding::of_lengths(&lengths);
        ((rows.tokens("source"), rows.tokens("read"), padding), rows.tokens("target"))
    }

    fn loss(&self, model: &T5, output: &TargetStream, targets: &Self::Extra) -> Loss<Self::Over> {
        model.loss_of_output(output, targets)
    }
}

//! Masked language modeling.

use std::marker::PhantomData;

use clap::Args;

use super::masking::{MaskOptions, MaskTokens};
use super::texts::{IDS, TARGETS, TextFields, TextRows, text_input};
use crate::data::{Example, RowStreams, RowWriter};
use crate::models::encoders::MaskedModel;
use crate::tensor::{Loss, Targets};
use crate::train::{Rows, Task, TaskSetup};

/// Prediction of masked tokens of texts, drawn for each row of each epoch.
pub struct MaskedLm<M> {
    text: TextRows,
    fields: TextFields,
    tokens: MaskTokens,
    options: MaskOptions,
    model: PhantomData<fn() -> M>,
}

/// Flags of [`MaskedLm`].
#[derive(Debug, Clone, PartialEq, Args)]
pub struct MaskFlags {
    #[command(flatten)]
    /// Fields of examples.
    pub fields: TextFields,
    /// Part of the tokens that the model predicts
    #[arg(long, value_name = "PART", default_value_t = 0.15)]
    pub mask_rate: f64,
    /// Part of these that become the mask; half of the others become random tokens, and the rest stays as it is
    #[arg(long, value_name = "PART", default_value_t = 0.8)]
    pub masked_part: f64,
    /// The token that stands for masked ones, if the tokenizer does not state it
    #[arg(long, value_name = "TOKEN")]
    pub mask_token: Option<String>,
}

impl<M: MaskedModel> MaskedLm<M> {
    /// Creates the task.
    ///
    /// # Errors
    /// Options out of range, a tokenizer without a mask, and a mask that the model does not have.
    fn new(text: TextRows, flags: &MaskFlags) -> Result<MaskedLm<M>, String> {
        let options = MaskOptions { rate: flags.mask_rate, masked: flags.masked_part };
        let options = options.checked()?;
        let (vocab, name) = (text.vocab, text.tokenizer.name());
        let given = flags.mask_token.as_ref();
        let given = given.map(|token| text.tokenizer.token_id("--mask-token", token)).transpose();
        let given = given.map_err(|error| error.to_string())?;
        let mask = given.or_else(|| text.tokenizer.mask_token()).ok_or_else(|| {
            format!(
                "--mask-token: {name} has no token for masked ones, such as [MASK]; name one, or use the tokenizer of \
                 the model"
            )
        })?;
        if mask as usize >= vocab {
            return Err(format!(
                "--mask-token: the mask of {name} is the token {mask}, but the model has ids below {vocab}; use the \
                 tokenizer of the model"
            ));
        }
        let mut special = text.tokenizer.special_ids();
        special.push(mask);
        special.sort_unstable();
        let tokens = MaskTokens { mask, special, vocab };
        let fields = flags.fields.clone();
        Ok(MaskedLm { text, fields, tokens, options, model: PhantomData })
    }
}

impl<M: MaskedModel> Task for MaskedLm<M> {
    type Model = M;
    type Extra = Targets<(M::Batch, M::Seq)>;
    type Over = (M::Batch, M::Seq);
    type Flags = MaskFlags;
    const NAME: &'static str = "masked-lm";

    fn open(setup: &TaskSetup<'_, M::Config, MaskFlags>) -> Result<MaskedLm<M>, String> {
        MaskedLm::new(TextRows::open::<M, _>(setup)?, setup.flags())
    }

    fn streams(&self) -> RowStreams {
        self.text.streams().targets(TARGETS, &[self.text.seq], self.text.vocab)
    }

    fn row(&self, example: &Example, key: u64, row: &mut RowWriter<'_>) -> Result<(), String> {
        let len = self.text.write(self.fields.texts(example)?, row)?.ids.len();
        let mut targets = row.ids(TARGETS)[..len].to_vec();
        self.tokens.mask(self.options, key, &mut row.ids(IDS)[..len], &mut targets);
        row.ids(TARGETS)[..len].copy_from_slice(&targets);
        Ok(())
    }

    fn input(&self, rows: &Rows<'_>) -> (M::In, Self::Extra) {
        (text_input::<M>(rows), rows.tokens(TARGETS))
    }

    fn loss(&self, model: &M, output: &M::Out, targets: &Self::Extra) -> Loss<(M::Batch, M::Seq)> {
        model.masked_loss(output, targets)
    }
}

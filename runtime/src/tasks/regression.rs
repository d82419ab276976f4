//! Numbers of texts.

use std::marker::PhantomData;

use clap::Args;

use super::texts::{TextFields, TextRows, text_input};
use crate::data::{Example, RowStreams, RowWriter};
use crate::models::encoders::{ClassLabels, LabelKind, SequenceClassifier};
use crate::tensor::{Loss, Targets, Tensor};
use crate::train::{Rows, Task, TaskSetup};

/// Name of the stream of numbers.
const NUMBER: &str = "number";

/// Prediction of a number of each text, by the mean square of the errors.
pub struct Regression<M> {
    text: TextRows,
    flags: NumberFlags,
    model: PhantomData<fn() -> M>,
}

/// Flags of [`Regression`].
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct NumberFlags {
    #[command(flatten)]
    /// Fields of examples.
    pub fields: TextFields,
    /// Field of the number
    #[arg(long, value_name = "NAME", default_value = "label")]
    pub label_field: String,
}

impl<M: SequenceClassifier> Regression<M> {
    fn new(
        text: TextRows,
        setup: &TaskSetup<'_, M::Config, NumberFlags>,
    ) -> Result<Regression<M>, String> {
        Ok(Regression { text, flags: setup.flags().clone(), model: PhantomData })
    }
}

impl<M: SequenceClassifier> Task for Regression<M> {
    type Model = M;
    type Extra = (Tensor<(M::Batch,)>, Targets<(M::Batch,)>);
    type Over = (M::Batch,);
    type Flags = NumberFlags;
    const NAME: &'static str = "regression";

    fn open(setup: &TaskSetup<'_, M::Config, NumberFlags>) -> Result<Self, String> {
        Self::new(TextRows::open::<M, _>(setup)?, setup)
    }

    /// A model with labels becomes one that predicts a number, whose weight begins with new values.
    fn configure(family: &mut M::Config, _: &NumberFlags) -> Result<(), String> {
        let labels = M::labels_mut(family);
        if labels.kind != LabelKind::Number {
            *labels = ClassLabels::numbered(1);
        }
        Ok(())
    }

    fn streams(&self) -> RowStreams {
        self.text.streams().values(NUMBER, &[])
    }

    fn row(&self, example: &Example, _: u64, row: &mut RowWriter<'_>) -> Result<(), String> {
        self.text.write(self.flags.fields.texts(example)?, row)?;
        let number = example.number(&self.flags.label_field)? as f32;
        row.values(NUMBER).fill(number);
        Ok(())
    }

    fn input(&self, rows: &Rows<'_>) -> (M::In, Self::Extra) {
        (text_input::<M>(rows), (rows.tensor(NUMBER), rows.counted()))
    }

    fn loss(
        &self,
        model: &M,
        output: &M::Out,
        (numbers, counted): &Self::Extra,
    ) -> Loss<(M::Batch,)> {
        let errors = model.number(output) - numbers;
        Loss::masked_mean_of(&errors.square(), counted)
    }
}

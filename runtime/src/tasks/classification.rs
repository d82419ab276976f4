//! Classification of texts.

use std::marker::PhantomData;

use clap::Args;

use super::labels::{GivenLabels, label};
use super::texts::{TARGETS, TextFields, TextRows, text_input};
use crate::data::{Example, RowStreams, RowWriter};
use crate::models::encoders::{ClassLabels, LabelKind, SequenceClassifier};
use crate::tensor::{Loss, Targets};
use crate::train::{Rows, Task, TaskSetup};

/// Prediction of a label of each text.
pub struct Classification<M> {
    text: TextRows,
    flags: LabelFlags,
    labels: ClassLabels,
    model: PhantomData<fn() -> M>,
}

/// Flags of [`Classification`].
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct LabelFlags {
    #[command(flatten)]
    /// Fields of examples.
    pub fields: TextFields,
    /// Field of the label, by number or name
    #[arg(long, value_name = "NAME", default_value = "label")]
    pub label_field: String,
    #[command(flatten)]
    /// Labels of the model.
    pub labels: GivenLabels,
}

impl<M: SequenceClassifier> Classification<M> {
    fn new(
        text: TextRows,
        setup: &TaskSetup<'_, M::Config, LabelFlags>,
    ) -> Result<Classification<M>, String> {
        let labels = M::labels(setup.family()).clone();
        match labels.kind {
            LabelKind::Class => {
                let flags = setup.flags().clone();
                Ok(Classification { text, flags, labels, model: PhantomData })
            }
            LabelKind::Number => {
                Err("--labels: the model predicts a number, and no label; give it at least two \
                 labels, or train it for numbers"
                    .into())
            }
        }
    }
}

impl<M: SequenceClassifier> Task for Classification<M> {
    type Model = M;
    type Extra = Targets<(M::Batch,)>;
    type Over = (M::Batch,);
    type Flags = LabelFlags;
    const NAME: &'static str = "classification";

    fn open(setup: &TaskSetup<'_, M::Config, LabelFlags>) -> Result<Self, String> {
        Self::new(TextRows::open::<M, _>(setup)?, setup)
    }

    fn configure(family: &mut M::Config, flags: &LabelFlags) -> Result<(), String> {
        flags.labels.set(M::labels_mut(family))
    }

    fn streams(&self) -> RowStreams {
        self.text.streams().targets(TARGETS, &[], self.labels.count())
    }

    fn row(&self, example: &Example, _: u64, row: &mut RowWriter<'_>) -> Result<(), String> {
        self.text.write(self.flags.fields.texts(example)?, row)?;
        row.ids(TARGETS).fill(label(&self.labels, &self.flags.label_field, example)?);
        Ok(())
    }

    fn input(&self, rows: &Rows<'_>) -> (M::In, Self::Extra) {
        (text_input::<M>(rows), rows.tokens(TARGETS))
    }

    fn loss(&self, model: &M, output: &M::Out, labels: &Self::Extra) -> Loss<(M::Batch,)> {
        model.class_loss(output, labels)
    }
}

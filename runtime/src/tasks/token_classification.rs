//! Classification of tokens, such as the recognition of names.

use std::marker::PhantomData;

use clap::Args;

use super::labels::{GivenLabels, label_of};
use super::texts::{TARGETS, TextRows, text_input};
use crate::data::{Example, Field, RowStreams, RowWriter};
use crate::models::encoders::{ClassLabels, TokenClassifier};
use crate::tensor::{Loss, Targets};
use crate::train::{Rows, Task, TaskSetup};
use meshwright_tokenize::TextToMark;

/// Prediction of a label of each word, at its first token. The label -100 counts in no loss.
pub struct TokenClassification<M> {
    text: TextRows,
    flags: WordFlags,
    labels: ClassLabels,
    model: PhantomData<fn() -> M>,
}

/// Flags of [`TokenClassification`].
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct WordFlags {
    /// Field of the words of a text, a list
    #[arg(long, value_name = "NAME", default_value = "tokens")]
    pub words_field: String,
    /// Field of the labels of its words, by numbers or names
    #[arg(long, value_name = "NAME", default_value = "labels")]
    pub label_field: String,
    #[command(flatten)]
    /// Labels of the model.
    pub labels: GivenLabels,
}

/// The label of a word that counts in no loss, as in `transformers`.
const IGNORED: Field = Field::Integer(-100);

impl<M: TokenClassifier> TokenClassification<M> {
    fn new(
        text: TextRows,
        setup: &TaskSetup<'_, M::Config, WordFlags>,
    ) -> Result<TokenClassification<M>, String> {
        let (flags, labels) = (setup.flags().clone(), M::labels(setup.family()).clone());
        Ok(TokenClassification { text, flags, labels, model: PhantomData })
    }

    /// Returns the words of an example.
    fn words(&self, example: &Example) -> Result<Vec<String>, String> {
        let name = &self.flags.words_field;
        let wrong = |kind: &str| format!("`{name}` is {kind}, but has to be a list of texts");
        match example.field(name)? {
            Field::List(list) => {
                let text = |field: &Field| match field {
                    Field::Text(text) => Ok(text.clone()),
                    other => Err(wrong(&format!("a list with {}", other.kind()))),
                };
                list.iter().map(text).collect()
            }
            other => Err(wrong(other.kind())),
        }
    }

    /// Returns the label of each word of an example; `None` if it counts in no loss.
    fn labels_of(&self, example: &Example, words: usize) -> Result<Vec<Option<u32>>, String> {
        let name = &self.flags.label_field;
        let list = match example.field(name)? {
            Field::List(list) => list,
            other => {
                return Err(format!(
                    "`{name}` is {}, but has to be a list of labels",
                    other.kind()
                ));
            }
        };
        if list.len() != words {
            let field = &self.flags.words_field;
            return Err(format!(
                "`{name}` has {} labels, but `{field}` has {words} words",
                list.len()
            ));
        }
        let label = |field: &Field| match field {
            ignored if *ignored == IGNORED => Ok(None),
            field => label_of(&self.labels, name, field).map(Some),
        };
        list.iter().map(label).collect()
    }
}

impl<M: TokenClassifier> Task for TokenClassification<M> {
    type Model = M;
    type Extra = Targets<(M::Batch, M::Seq)>;
    type Over = (M::Batch, M::Seq);
    type Flags = WordFlags;
    const NAME: &'static str = "token-classification";

    fn open(setup: &TaskSetup<'_, M::Config, WordFlags>) -> Result<Self, String> {
        Self::new(TextRows::open::<M, _>(setup)?, setup)
    }

    fn configure(family: &mut M::Config, flags: &WordFlags) -> Result<(), String> {
        flags.labels.set(M::labels_mut(family))
    }

    fn streams(&self) -> RowStreams {
        self.text.streams().targets(TARGETS, &[self.text.seq], self.labels.count())
    }

    fn row(&self, example: &Example, _: u64, row: &mut RowWriter<'_>) -> Result<(), String> {
        let words = self.words(example)?;
        let labels = self.labels_of(example, words.len())?;
        let marked = self.text.write(TextToMark::Words(&words), row)?;
        let mut last = None;
        for (target, word) in row.ids(TARGETS).iter_mut().zip(marked.words) {
            let is_first = word != last;
            last = word.or(last);
            let label = word.filter(|_| is_first).and_then(|word| labels[word as usize]);
            if let Some(label) = label {
                *target = label;
            }
        }
        Ok(())
    }

    fn input(&self, rows: &Rows<'_>) -> (M::In, Self::Extra) {
        (text_input::<M>(rows), rows.tokens(TARGETS))
    }

    fn loss(&self, model: &M, output: &M::Out, labels: &Self::Extra) -> Loss<(M::Batch, M::Seq)> {
        model.token_loss(output, labels)
    }
}

//! Implementations that classifiers of all encoders share: a head named `classifier` reads their output, and their
//! configuration has `labels`.

/// Implements [`SequenceClassifier`](super::SequenceClassifier) of a model with one vector for each text. The module
/// has the dims `Batch`, `Hidden` and `Classes`.
macro_rules! sequence_classifier {
    ($model:ty) => {
        impl $crate::encoders::SequenceClassifier for $model {
            type Classes = Classes;

            fn labels(config: &Self::Config) -> &$crate::encoders::ClassLabels {
                &config.labels
            }

            fn labels_mut(config: &mut Self::Config) -> &mut $crate::encoders::ClassLabels {
                &mut config.labels
            }

            fn class_loss(
                &self,
                x: &Tensor<(Batch, Hidden)>,
                labels: &Targets<(Batch,)>,
            ) -> Loss<(Batch,)> {
                self.classifier.loss(x, labels)
            }

            fn number(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch,)> {
                self.classifier.logits(x).select(Classes, 0)
            }

            fn class_logits(&self, x: &Tensor<(Batch, Hidden)>) -> Tensor<(Batch, Classes)> {
                self.classifier.logits(x)
            }
        }
    };
}

/// Implements [`TokenClassifier`](super::TokenClassifier) of a model with a stream of tokens. The module has the dims
/// `Batch`, `Seq` and `Classes`, and the type `Stream`.
macro_rules! token_classifier {
    ($model:ty) => {
        impl $crate::encoders::TokenClassifier for $model {
            fn labels(config: &Self::Config) -> &$crate::encoders::ClassLabels {
                &config.labels
            }

            fn labels_mut(config: &mut Self::Config) -> &mut $crate::encoders::ClassLabels {
                &mut config.labels
            }

            fn token_loss(&self, x: &Stream, labels: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
                self.classifier.loss(&x.gather(Seq), labels)
            }
        }

        impl $model {
            /// Returns the logits of each position from the output of `forward`.
            pub fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Classes)> {
                self.classifier.logits(&x.gather(Seq))
            }
        }
    };
}

pub(crate) use {sequence_classifier, token_classifier};

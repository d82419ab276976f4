//! Two towers, and every sample of the batch against every other.

use meshwright::prelude::*;

use super::compare;

dims! { Batch @ data, Others, Image, Text, Hidden }

// ANCHOR: towers
/// The similarity of images and texts of the whole batch, on all data ranks (Radford et al., 2021).
#[model]
struct Towers {
    image: Linear<Image, Hidden>,
    text: Linear<Text, Hidden>,
    scale: Param<()>,
}

impl Towers {
    fn similarity(
        &self,
        image: &Tensor<(Batch, Image)>,
        text: &Tensor<(Batch, Text)>,
    ) -> Tensor<(Batch, Others)> {
        let [a, b] =
            [self.image.forward(image), self.text.forward(text)].map(|x| &x / x.norm(Hidden));
        a.dot(&b.gather_as(Batch, Others), Hidden, ()) * self.scale.tensor().exp()
    }
}
// ANCHOR_END: towers

#[test]
fn contrastive_towers() {
    let mut sizes = Sizes::new().with(Image, 6).with(Text, 4).with(Hidden, 8);
    sizes.init_std = 0.5;
    compare(&sizes, |model: &Towers, rank| {
        let image = Tensor::normal(rank, &[4, 6], "image");
        let text = Tensor::normal(rank, &[4, 4], "text");
        let scores = model.similarity(&image, &text);
        let own: Tensor<(Batch, Others)> = scores.like(|at| if at[0] == at[1] { 1.0 } else { 0.0 });
        Loss::mean_of(&(scores.log_sum_exp(Others) - (&scores * own).sum(Others)))
    });
}

// ANCHOR: siamese
/// One encoder for both sides, and the cosine of its results.
#[model]
struct Siamese {
    encoder: Linear<Text, Hidden>,
}

impl Siamese {
    fn cosine(&self, a: &Tensor<(Batch, Text)>, b: &Tensor<(Batch, Text)>) -> Tensor<(Batch,)> {
        let [a, b] = [a, b].map(|x| self.encoder.forward(x).tanh());
        (&a * &b).sum(Hidden) / (a.norm(Hidden) * b.norm(Hidden)).maximum(1e-8)
    }
}
// ANCHOR_END: siamese

#[test]
fn siamese_towers() {
    let mut sizes = Sizes::new().with(Text, 4).with(Hidden, 8);
    sizes.init_std = 0.5;
    compare(&sizes, |model: &Siamese, rank| {
        let [a, b] = ["a", "b"].map(|name| Tensor::normal(rank, &[4, 4], name));
        Loss::mean_of(&(1.0 - model.cosine(&a, &b)))
    });
}

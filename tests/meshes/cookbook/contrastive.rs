//! Two towers, and every sample of the batch against every other.

use meshwright::prelude::*;

use super::compare;

dims! { Batch @ data, Others, Image, Text, Hidden }

// ANCHOR: towers
/// Finding the text of each image among the texts of the whole batch, on all data ranks, and the image of each text
/// (Radford et al., 2021).
#[model]
struct Towers {
    image: Linear<Image, Hidden>,
    text: Linear<Text, Hidden>,
    scale: Param<()>,
    loss: CrossEntropy<Others>,
}

impl Towers {
    fn loss(&self, image: &Tensor<(Batch, Image)>, text: &Tensor<(Batch, Text)>) -> Loss<(Batch,)> {
        let [a, b] =
            [self.image.forward(image), self.text.forward(text)].map(|x| &x / x.norm(Hidden));
        let scale = self.scale.tensor().exp();
        let of_all = |a: &Tensor<(Batch, Hidden)>, b: &Tensor<(Batch, Hidden)>| {
            let scores = a.dot(&b.gather_as(Batch, Others), Hidden, ()) * &scale;
            self.loss.forward(&scores, &Targets::diagonal(&scores))
        };
        of_all(&a, &b) + of_all(&b, &a)
    }
}
// ANCHOR_END: towers

#[test]
fn contrastive_towers() {
    let mut sizes = Sizes::new().with(Image, 6).with(Text, 4).with(Hidden, 8).with(Others, 4);
    sizes.init_std = 0.5;
    compare(&sizes, |model: &Towers, rank| {
        let image = Tensor::normal(rank, &[4, 6], "image");
        let text = Tensor::normal(rank, &[4, 4], "text");
        model.loss(&image, &text)
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

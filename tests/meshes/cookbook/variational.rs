//! A variational autoencoder (Kingma and Welling, 2013).

use meshwright::prelude::*;

use super::compare;

dims! { Batch @ data, Pixels, Hidden, Latent }

// ANCHOR: vae
#[model]
struct Autoencoder {
    #[sharded(tp = "col")]
    encode: Linear<Pixels, Hidden>,
    #[sharded(tp = "row")]
    mean: Linear<Hidden, Latent>,
    #[sharded(tp = "row")]
    log_var: Linear<Hidden, Latent>,
    #[sharded(tp = "col")]
    up: Linear<Latent, Hidden>,
    #[sharded(tp = "row")]
    decode: Linear<Hidden, Pixels>,
}

impl Autoencoder {
    fn loss(&self, x: &Tensor<(Batch, Pixels)>) -> Loss<(Batch,)> {
        let inner = self.encode.forward(x).relu();
        let (mean, log_var) =
            (self.mean.forward(&inner), self.log_var.forward(&inner).clamp(-8.0, 8.0));
        let noise: Tensor<(Batch, Latent)> = Tensor::normal(x.rank(), &mean.sizes(), "noise");
        let z = &mean + noise * (0.5 * &log_var).exp();
        let error = (self.decode.forward(&self.up.forward(&z).relu()) - x).square().sum(Pixels);
        let kl = 0.5 * (mean.square() + log_var.exp() - log_var - 1.0).sum(Latent);
        Loss::mean_of(&(error + kl))
    }
}
// ANCHOR_END: vae

#[test]
fn variational_autoencoder() {
    let mut sizes = Sizes::new().with(Pixels, 6).with(Hidden, 8).with(Latent, 4);
    sizes.init_std = 0.3;
    compare(&sizes, |model: &Autoencoder, rank| model.loss(&Tensor::normal(rank, &[4, 6], "x")));
}

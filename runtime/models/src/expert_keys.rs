//! Keys that families with mixtures of experts share.

use std::borrow::Cow;

use meshwright_backend::MAX_TOP_K;
use meshwright_core::nn::layers::RouterPenalties;
use meshwright_store::checkpoint::hf::{HfKeys, KeyResult, StackedWeights, TensorRole};
use meshwright_store::family::{LoadBalancing, SizeFlag};

/// The fields of a configuration that are sizes of its mixtures.
#[derive(Debug)]
pub struct ExpertFields<'a> {
    /// The key of the number of experts.
    pub key: &'static str,
    /// Number of experts.
    pub experts: &'a mut usize,
    /// `num_experts_per_tok`.
    pub top_k: &'a mut usize,
}

impl ExpertFields<'_> {
    /// Names the sizes of mixtures, which are `absent` in a file without the keys. A new model has eight experts, two
    /// for each token.
    ///
    /// # Errors
    /// More chosen experts than there are, or than a [`Router`](meshwright_core::nn::layers::Router) can choose.
    pub fn keys(self, keys: &mut HfKeys<'_>, absent: [usize; 2]) -> KeyResult {
        let [experts, top_k] = if keys.is_new() { [8, 2] } else { absent };
        keys.size_or(SizeFlag::EXPERTS, self.key, self.experts, experts)?;
        keys.size_or(SizeFlag::TOP_K, "num_experts_per_tok", self.top_k, top_k)?;
        let (key, experts, top_k) = (self.key, *self.experts, *self.top_k);
        keys.require(top_k <= experts, || {
            if keys.is_new() {
                format!("--top-k: {top_k} is more than --experts {experts}")
            } else {
                format!("num_experts_per_tok {top_k} is more than {key} {experts}")
            }
        })?;
        keys.require(top_k <= MAX_TOP_K, || {
            let given = if keys.is_new() { SizeFlag::TOP_K.name() } else { "num_experts_per_tok" };
            format!("{given} is {top_k}; a token can choose at most {MAX_TOP_K} experts")
        })
    }
}

/// Training of routers beside the loss of the model.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RouterTraining {
    /// `router_aux_loss_coef`: weight of the load-balancing loss.
    pub loss: f64,
    /// `router_z_loss_coef`: weight of the z-loss, which `transformers` does not have.
    pub z_loss: f64,
    /// `router_bias_rate`: change of the bias of the choice after each step, which `transformers` does not have.
    pub bias_rate: f64,
}

impl RouterTraining {
    /// Names the keys of these numbers. A file without `router_aux_loss_coef` has the weight `absent`, and no z-loss; a
    /// new model has the numbers `of_new`.
    ///
    /// # Errors
    /// Values that are no numbers of at least 0.
    pub fn keys(
        &mut self,
        keys: &mut HfKeys<'_>,
        absent: f64,
        of_new: RouterTraining,
    ) -> KeyResult {
        if keys.is_new() {
            *self = of_new;
        }
        let loss = if keys.is_new() { of_new.loss } else { absent };
        keys.number("router_aux_loss_coef", &mut self.loss, loss)?;
        own_number(keys, "router_z_loss_coef", &mut self.z_loss)
    }

    /// Names the key of the rate of the bias of the choice, in families that have this bias.
    ///
    /// # Errors
    /// A value that is no number of at least 0.
    pub fn bias_keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult {
        own_number(keys, "router_bias_rate", &mut self.bias_rate)
    }

    /// Sets the numbers that flags give. `has_bias` is false for a family without a bias of the choice.
    ///
    /// # Errors
    /// A rate of a bias that the family does not have, in a message that begins with the flag.
    pub fn set(
        &mut self,
        balance: Option<LoadBalancing>,
        z_loss: Option<f64>,
        family: &str,
        has_bias: bool,
    ) -> Result<(), String> {
        if let Some(balance) = balance {
            if !has_bias {
                balance.weight_of_loss(family)?;
            }
            [self.loss, self.bias_rate] = balance.weights();
        }
        self.z_loss = z_loss.unwrap_or(self.z_loss);
        Ok(())
    }

    /// Returns the weights of the auxiliary losses.
    pub fn penalties(&self) -> RouterPenalties {
        RouterPenalties { balance: self.loss as f32, z_loss: self.z_loss as f32 }
    }
}

/// Names a number that `transformers` does not have, and that is 0 in a file without it.
fn own_number(keys: &mut HfKeys<'_>, key: &'static str, field: &mut f64) -> KeyResult {
    keys.list(&[key]);
    if let Some(settings) = keys.settings() {
        *field = settings.number(key)?.unwrap_or(0.0);
    }
    if *field > 0.0 {
        keys.write(key, *field);
    }
    Ok(())
}

/// Returns the role of a tensor of a mixture in `mlp`. In memory, newer versions of `transformers` have the experts of
/// a layer in two tensors; some programs store these.
pub fn expert_role(role: TensorRole<'_>) -> TensorRole<'_> {
    let TensorRole::Model(name) = &role else { return role };
    let Some((block, part)) = name.split_once(".mlp.") else { return role };
    let weights = |names: &[&str]| {
        let names = names.iter().map(|name| format!("{block}.mlp.experts.*.{name}.weight"));
        TensorRole::StackOfWeights(StackedWeights { names: names.collect() })
    };
    match part {
        "experts.gate_up_proj" => weights(&["gate_proj", "up_proj"]),
        "experts.down_proj" => weights(&["down_proj"]),
        _ => TensorRole::Model(Cow::Owned(name.clone().into_owned())),
    }
}

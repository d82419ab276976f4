//! Ways to keep the experts of a mixture equally loaded.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::checkpoint::hf::model_type::with_article;

/// A way to keep the experts of a mixture equally loaded: `--balance`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(into = "String")]
pub enum LoadBalancing {
    /// None: `none`.
    Off,
    /// A load-balancing loss of this weight: `batch=X`, also written `loss=X`.
    Loss(f64),
    /// A bias of the choice of each expert, which changes by this rate after each step: `bias=X`.
    Bias(f64),
}

impl LoadBalancing {
    /// Returns the way of a model with these weights of its configuration.
    pub fn of_weights(loss: f64, bias_rate: f64) -> LoadBalancing {
        match (loss, bias_rate) {
            (_, rate) if rate > 0.0 => LoadBalancing::Bias(rate),
            (weight, _) if weight > 0.0 => LoadBalancing::Loss(weight),
            _ => LoadBalancing::Off,
        }
    }

    /// Returns the weight of the loss in a `family` whose experts have no bias of the choice.
    ///
    /// # Errors
    /// A rate of the bias, in a message that begins with the flag.
    pub fn weight_of_loss(self, family: &str) -> Result<f64, String> {
        match self {
            LoadBalancing::Off => Ok(0.0),
            LoadBalancing::Loss(weight) => Ok(weight),
            LoadBalancing::Bias(_) => Err(format!(
                "--balance: {} has no bias of the choice of experts; use batch=X or none",
                with_article(family)
            )),
        }
    }

    /// Returns the weight of the loss, and the rate of the bias.
    pub fn weights(self) -> [f64; 2] {
        match self {
            LoadBalancing::Off => [0.0, 0.0],
            LoadBalancing::Loss(weight) => [weight, 0.0],
            LoadBalancing::Bias(rate) => [0.0, rate],
        }
    }
}

impl fmt::Display for LoadBalancing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadBalancing::Off => f.write_str("none"),
            LoadBalancing::Loss(weight) => write!(f, "batch={weight}"),
            LoadBalancing::Bias(rate) => write!(f, "bias={rate}"),
        }
    }
}

impl From<LoadBalancing> for String {
    fn from(balancing: LoadBalancing) -> String {
        balancing.to_string()
    }
}

impl FromStr for LoadBalancing {
    type Err = String;

    fn from_str(text: &str) -> Result<LoadBalancing, String> {
        let (kind, number) = text.split_once('=').unwrap_or((text, ""));
        let weight = number.trim().parse().ok().filter(|weight: &f64| *weight >= 0.0);
        let weight = weight.filter(|weight| weight.is_finite());
        match (kind.trim(), weight) {
            ("none", None) if !text.contains('=') => Ok(LoadBalancing::Off),
            ("batch" | "loss" | "bias", Some(weight)) if weight as f32 == f32::INFINITY => {
                Err(format!("`{text}` is too large"))
            }
            ("batch" | "loss", Some(0.0)) | ("bias", Some(0.0)) => Ok(LoadBalancing::Off),
            ("batch" | "loss", Some(weight)) => Ok(LoadBalancing::Loss(weight)),
            ("bias", Some(rate)) => Ok(LoadBalancing::Bias(rate)),
            ("batch" | "loss", None) => {
                Err(format!("`{text}` has no weight of at least 0; write for example batch=0.01"))
            }
            ("bias", None) => {
                Err(format!("`{text}` has no rate of at least 0; write for example bias=0.001"))
            }
            _ => Err(format!("`{text}` is not known; use none, batch=X or bias=X")),
        }
    }
}

//! Utilization of GPUs, and the duration of a run.

/// The work of a step, and the GPUs that do it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepWork {
    /// Tokens of the step, over all ranks.
    pub tokens: f64,
    /// FLOPs of the model on these tokens, forward and backward, if attention counts all pairs of tokens.
    pub model_flops_full: f64,
    /// The same if attention counts visible pairs only.
    pub model_flops_causal: f64,
    /// FLOPs that all GPUs compute, recomputation included.
    pub hardware_flops: f64,
    /// Number of GPUs.
    pub gpus: usize,
    /// Peak FLOP/s of a GPU.
    pub peak: f64,
}

/// Rates of a run whose steps take the same time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Utilization {
    /// Model FLOPs utilization, with full attention.
    pub mfu_full: f64,
    /// Model FLOPs utilization, with causal attention.
    pub mfu_causal: f64,
    /// Hardware FLOPs utilization.
    pub hfu: f64,
    /// Tokens per second of all GPUs.
    pub tokens_per_second: f64,
    gpus: usize,
}

/// The duration of a run without interruptions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunDuration {
    /// Days.
    pub days: f64,
    /// Hours times GPUs.
    pub gpu_hours: f64,
}

impl StepWork {
    /// Returns the utilization if the step takes `seconds`. MFU and HFU as in Chowdhery et al., *PaLM* (2022), appendix
    /// B.
    pub fn utilization(&self, seconds: f64) -> Utilization {
        let possible = seconds * self.gpus as f64 * self.peak;
        Utilization {
            mfu_full: self.model_flops_full / possible,
            mfu_causal: self.model_flops_causal / possible,
            hfu: self.hardware_flops / possible,
            tokens_per_second: self.tokens / seconds,
            gpus: self.gpus,
        }
    }
}

impl Utilization {
    /// Returns the duration of training on `tokens` tokens.
    pub fn duration(&self, tokens: f64) -> RunDuration {
        let hours = tokens / self.tokens_per_second / 3600.0;
        RunDuration { days: hours / 24.0, gpu_hours: hours * self.gpus as f64 }
    }
}

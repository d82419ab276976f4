//! Sizes of the measured kernels.

/// Sizes of a model and its training step.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    pub name: &'static str,
    pub batch: usize,
    pub seq: usize,
    pub hidden: usize,
    pub ffn: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub vocab: usize,
    /// Tokens per chunk of the language-model head, for GPUs whose memory does not hold the logits of all tokens.
    pub chunk_tokens: usize,
}

impl Model {
    pub fn tokens(&self) -> usize {
        self.batch * self.seq
    }

    pub fn head_dim(&self) -> usize {
        self.hidden / self.heads
    }
}

/// Sizes of all tables.
pub struct Sizes {
    pub llama: Model,
    pub gpt2: Model,
    /// Elements of the copy that bounds memory-bound kernels.
    pub copied: usize,
    /// Rows and columns of the square matmul whose throughput is the limit of all matmuls.
    pub square: usize,
    /// Parameters of an optimizer step.
    pub parameters: usize,
}

impl Sizes {
    /// A Llama of 1.2B parameters on 4 sequences of 4096 tokens, and GPT-2 124M on 32 of 1024.
    pub fn full() -> Sizes {
        let llama = Model {
            name: "Llama 1.2B",
            batch: 4,
            seq: 4096,
            hidden: 2048,
            ffn: 8192,
            heads: 32,
            kv_heads: 8,
            vocab: 32000,
            chunk_tokens: (1 << 27) / 32000,
        };
        let gpt2 = Model {
            name: "GPT-2 124M",
            batch: 32,
            seq: 1024,
            hidden: 768,
            ffn: 3072,
            heads: 12,
            kv_heads: 12,
            vocab: 50304,
            chunk_tokens: (1 << 27) / 50304,
        };
        Sizes { llama, gpt2, copied: 1 << 30, square: 8192, parameters: 1 << 28 }
    }
}

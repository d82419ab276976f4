//! Sizes and constants of a Whisper.

use serde_json::Value;

/// The sizes and constants of a Whisper ([Radford et al. 2022](https://arxiv.org/abs/2212.04356)).
#[derive(Debug, Clone, PartialEq)]
pub struct WhisperConfig {
    /// `d_model`: width of the residual streams.
    pub hidden: usize,
    /// `num_mel_bins`: bins of the spectrogram; by default 80.
    pub mels: usize,
    /// `encoder_layers`: layers of the encoder.
    pub encoder_layers: usize,
    /// `encoder_attention_heads`: attention heads of the encoder.
    pub encoder_heads: usize,
    /// `encoder_ffn_dim`: width of the feed-forwards of the encoder.
    pub encoder_ffn: usize,
    /// `decoder_layers`: layers of the decoder.
    pub decoder_layers: usize,
    /// `decoder_attention_heads`: attention heads of the decoder.
    pub decoder_heads: usize,
    /// `decoder_ffn_dim`: width of the feed-forwards of the decoder.
    pub decoder_ffn: usize,
    /// `max_source_positions`: positions of the encoder, half of the frames of every clip; by default 1500, which is 30
    /// seconds.
    pub source_positions: usize,
    /// `max_target_positions`: rows of the decoder's table of positions, the longest text; by default 448.
    pub target_positions: usize,
    /// `vocab_size`: number of token ids.
    pub vocab: usize,
    /// `init_std`: standard deviation of the initial weights; by default 0.02.
    pub init_std: f64,
    /// `pad_token_id`: the row of the embedding that look-ups do not train, and the token that the decoder reads behind
    /// ignored targets; by default 50256.
    pub padding: Option<usize>,
    /// `decoder_start_token_id`: the token that the decoder reads first; by default 50257.
    pub start: usize,
    /// `bos_token_id`, as in the file.
    pub bos: Value,
    /// `eos_token_id`, as in the file: the token at the end of a text.
    pub eos: Value,
}

/// A model without sizes.
impl Default for WhisperConfig {
    fn default() -> WhisperConfig {
        WhisperConfig {
            hidden: 1,
            mels: 80,
            encoder_layers: 1,
            encoder_heads: 1,
            encoder_ffn: 1,
            decoder_layers: 1,
            decoder_heads: 1,
            decoder_ffn: 1,
            source_positions: 1500,
            target_positions: 448,
            vocab: 1,
            init_std: 0.02,
            padding: None,
            start: 0,
            bos: Value::Null,
            eos: Value::Null,
        }
    }
}

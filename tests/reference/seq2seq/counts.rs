//! Parameters and FLOPs of encoder-decoders, by closed formulas.

use meshwright::models::t5::{T5, T5Config};
use meshwright::models::whisper::{Whisper, WhisperConfig};
use meshwright::nn::build;
use meshwright::train::{Family, FamilyModel};
use meshwright_tests::run::on_mesh;

#[test]
fn t5_counts_parameters_and_flops_of_both_stacks() {
    let plain = T5Config {
        hidden: 16,
        ffn: 24,
        encoder_layers: 3,
        decoder_layers: 2,
        heads: 4,
        head_dim: 6,
        vocab: 29,
        buckets: 8,
        max_distance: 9,
        ..T5Config::default()
    };
    assert_eq!(plain.outline().layers, 5);
    let gated = T5Config { gated: true, tied: false, scaled: false, ..plain.clone() };
    for config in [plain, gated] {
        let T5Config { hidden, ffn, heads, head_dim, vocab, buckets, .. } = config;
        let (inner, wide) = (heads * head_dim, if config.gated { 3 } else { 2 });
        let attention = 4 * hidden * inner;
        let encoder = 3 * (attention + wide * hidden * ffn + 2 * hidden) + hidden;
        let memory = 2 * 2 * hidden * inner;
        let decoder = 2 * (2 * attention + wide * hidden * ffn + 3 * hidden) + hidden - memory;
        let head = vocab * hidden;
        let tables = 2 * buckets * heads + head + if config.tied { 0 } else { head };
        let [source, target] = [14, 9];
        let scores = inner * 2 * (3 * source * source + 2 * target * (target + source));
        let linear = source * (encoder + memory) + target * (decoder + head);
        on_mesh("1", 1, |rank| {
            let built = build::<T5>(rank, &T5::dim_sizes(&config)).unwrap();
            assert_eq!(built.global_len(), encoder + decoder + memory + tables);
            let flops = built.flops_per_row(|path| T5::positions(path, [source, target]));
            assert_eq!(flops, 6.0 * (linear + scores) as f64);
        });
    }
}

#[test]
fn whisper_counts_parameters_and_flops_of_both_stacks() {
    let config = WhisperConfig {
        hidden: 16,
        mels: 6,
        encoder_layers: 3,
        encoder_heads: 4,
        encoder_ffn: 20,
        decoder_layers: 2,
        decoder_heads: 2,
        decoder_ffn: 24,
        source_positions: 14,
        target_positions: 11,
        vocab: 29,
        ..WhisperConfig::default()
    };
    assert_eq!(config.outline().layers, 5);
    assert_eq!(config.outline().longest, Some(11));
    let (hidden, source, target) = (16, 14, 9);
    // Keys have no biases.
    let attention = 4 * hidden * hidden + 3 * hidden;
    let mlp = |ffn: usize| 2 * hidden * ffn + ffn + hidden;
    let norm = 2 * hidden;
    let first = 3 * 6 * hidden + hidden;
    let second = 3 * hidden * hidden + hidden;
    let encoder = second + 3 * (attention + mlp(20) + 2 * norm) + norm;
    let memory = 2 * (2 * hidden * hidden + hidden);
    let decoder = 2 * (2 * attention + mlp(24) + 3 * norm) + norm - memory;
    let tables = (14 + 11 + 29) * hidden;
    let scores = hidden * 2 * (3 * source * source + 2 * target * (target + source));
    let linear =
        2 * source * first + source * (encoder + memory) + target * (decoder + 29 * hidden);
    on_mesh("1", 1, |rank| {
        let built = build::<Whisper>(rank, &Whisper::dim_sizes(&config)).unwrap();
        assert_eq!(built.global_len(), first + encoder + memory + decoder + tables);
        let flops = built.flops_per_row(|path| Whisper::positions(path, [source, target]));
        assert_eq!(flops, 6.0 * (linear + scores) as f64);
    });
}

"""A case of Whisper, and spectrograms by its feature extractor.

Usage: python whisper_cases.py [--out DIR]
"""

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

from case import INIT_STD
from family_case import Mutation, replaced
from generate import BATCH
from seq2seq_case import Seq2SeqCase, main

POSITIONS = 9
KEYS = {
    "vocab_size": 48, "num_mel_bins": 10, "d_model": 24, "encoder_layers": 2, "encoder_attention_heads": 4,
    "encoder_ffn_dim": 20, "decoder_layers": 3, "decoder_attention_heads": 2, "decoder_ffn_dim": 28,
    "max_source_positions": POSITIONS, "max_target_positions": 14, "pad_token_id": 5, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 9, "begin_suppress_tokens": [3, 2], "init_std": INIT_STD,
    "use_cache": False,
}


class WhisperCase(Seq2SeqCase):
    """Spectrograms are random, and each row of targets begins with the loudest bin of the first frame."""

    def sources(self, rng):
        mels = rng.normal(size=(BATCH, self.keys["num_mel_bins"], 2 * POSITIONS)).astype(np.float32)
        return {"input_features": torch.from_numpy(mels)}

    def targets(self, batch, rng):
        targets = super().targets(batch, rng)
        targets[:, 0] = batch["input_features"].numpy()[:, :, 0].argmax(axis=1)
        return targets

    def load_model(self, folder, dtype, config=None):
        model = super().load_model(folder, dtype, config)
        # `from_pretrained` of transformers 5.24 trains them, unlike a new model and earlier versions.
        model.model.encoder.embed_positions.requires_grad_(False)
        return model

    def build_model(self):
        model = super().build_model()
        with torch.no_grad():  # Fixed, but not those that a model begins with.
            model.model.encoder.embed_positions.weight.mul_(0.7)
        return model


def swapped(model):
    """Positions as pairs of a sine and a cosine."""
    weight = model.model.encoder.embed_positions.weight
    sines, cosines = weight.chunk(2, dim=1)
    weight.copy_(torch.stack((sines, cosines), dim=2).flatten(1))


def stride_of_ones(model):
    """The second convolution reads other frames."""
    forward = model.model.encoder.conv2.forward
    model.model.encoder.conv2.forward = lambda x: forward(torch.roll(x, 1, dims=-1))


def without(stack):
    def edit(model):
        getattr(model.model, stack).layer_norm = torch.nn.Identity()

    return edit


def seeing_the_end(model):
    for layer in model.model.decoder.layers:
        forward = layer.self_attn.forward
        layer.self_attn.forward = lambda *args, forward=forward, **kwargs: forward(
            *args, **(kwargs | {"attention_mask": None}))


def zeroed(ending):
    return replaced(ending, lambda value: value.zero_())


CASES = [
    WhisperCase("whisper", 71, "WhisperForConditionalGeneration", KEYS, [
        Mutation("start token", {"decoder_start_token_id": 10}),
        Mutation("token behind ignored targets", {"pad_token_id": 6}),
        Mutation("heads of the encoder", {"encoder_attention_heads": 2}),
        Mutation("heads of the decoder", {"decoder_attention_heads": 4}),
        Mutation("activation", {"activation_function": "silu"}),
        Mutation("no positions in the encoder", edit=zeroed("encoder.embed_positions.weight")),
        Mutation("positions in another order", edit=swapped),
        Mutation("no positions in the decoder", edit=zeroed("decoder.embed_positions.weight")),
        Mutation("frames of the second convolution", edit=stride_of_ones),
        *(Mutation(f"no norm after the {stack}", edit=without(stack)) for stack in ("encoder", "decoder")),
        *(Mutation(f"no bias {name}", edit=zeroed(f"{name}.bias"))
          for name in ("conv1", "conv2", "q_proj", "v_proj", "out_proj", "fc1", "fc2")),
        Mutation("decoder that sees the end", edit=seeing_the_end),
    ], dropped=("begin_suppress_tokens",), lr=3e-3),
]


def clip(samples):
    """A sound of a few tones and noise, in 16 bits."""
    rng = np.random.default_rng(5)
    time = np.arange(samples) / 16000
    sound = sum(a * np.sin(2 * np.pi * (f * time + s * time**2)) for a, f, s in ((0.3, 220, 400), (0.1, 3100, -900)))
    sound += 0.02 * rng.normal(size=samples)
    return np.clip(np.round(sound * 32768), -32768, 32767).astype(np.int16)


def write_log_mels(out):
    """Features of a second of sound, of its frames and some of the silence behind it, with 80 and with 128 bins."""
    sound = clip(9000)
    arrays = {"sound": sound.astype(np.int32)}
    for mels in (80, 128):
        extractor = transformers.WhisperFeatureExtractor(feature_size=mels)
        features = extractor((sound / 32768).astype(np.float32), sampling_rate=16000).input_features[0]
        assert features.shape == (mels, 3000)
        arrays[f"mels_{mels}"] = np.ascontiguousarray(np.asarray(features)[:, :64].T)
        arrays[f"last_{mels}"] = np.ascontiguousarray(np.asarray(features)[:, -1])
    save_file(arrays, out / "log_mel.safetensors")


if __name__ == "__main__":
    main(CASES, __doc__, lambda out: write_log_mels(out / "whisper"))

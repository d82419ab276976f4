"""Compares exported folders with transformers: `python tests/reference/round_trip.py FOLDER_OF_PROGRAMS [CASE ..]`.

A folder saved by transformers is exported without training, trained and exported, trained further by transformers and
imported again. Logits, keys of config.json, other files and losses have to be equal.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, LlamaConfig, MixtralConfig

SEQ, BATCH = 32, 4
TEXT = "The cat sat on the mat, and the dog — à côté — looked at it. Numbers: 12345. " * 300
TOLERANCE = 3e-6

common = dict(vocab_size=300, bos_token_id=0, eos_token_id=1, initializer_range=0.2)
llama = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, **common)
scaling = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
               original_max_position_embeddings=32)
CASES = {
    "llama_sharded": ("train_llama", LlamaConfig(pad_token_id=2, **llama), torch.bfloat16, "tp=2"),
    "llama_tied": ("train_llama", LlamaConfig(tie_word_embeddings=True, rope_parameters=scaling, **llama),
                   torch.float32, "fsdp=2"),
    "llama_wide": ("train_llama", LlamaConfig(head_dim=16, **llama), torch.float16, "1"),
    "gpt2": ("train_gpt2", GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0,
                                      attn_pdrop=0.0, **common), torch.bfloat16, "dp=2"),
    "mixtral_sharded": ("train_mixtral", MixtralConfig(num_local_experts=4, sliding_window=None, **llama),
                        torch.float32, "ep=2"),
}


def make_tokenizer():
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "</s>"]
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    bpe.train_from_iterator([TEXT], trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token="<s>", eos_token="</s>",
        chat_template="{% for m in messages %}{{ m.content }}{% endfor %}")


def keys(folder):
    with open(f"{folder}/config.json") as file:
        return json.load(file)


def side_files(folder):
    return {name for name in os.listdir(folder) if not name.startswith("model")}


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def check(case, is_right, what):
    print("ok   " if is_right else "SHORT", case, what, flush=True)
    return not is_right


def run_case(programs, case):
    program, config, dtype, mesh = CASES[case]
    shards = ["--export-shard-size", "20KB"] if "sharded" in case else []
    tokenizer = make_tokenizer()
    ids = torch.tensor(tokenizer(TEXT)["input_ids"])
    rows = torch.stack([ids[row * SEQ:][: SEQ + 1] for row in range(BATCH)])
    inputs, targets = rows[:, :-1], rows[:, 1:]

    def train(source, steps, lr, *flags):
        """Returns the loss of the first step."""
        command = [f"{programs}/{program}", "--init-from", source, "--data", "text.txt", "--seq", SEQ, "--batch", BATCH,
                   "--steps", steps, "--lr", lr, "--sample-tokens", 0, "--threads", 1, "--mesh", mesh, "--metrics",
                   f"{case}/{len(os.listdir(case))}.jsonl", *flags]
        command = [str(word) for word in command]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        with open(command[command.index("--metrics") + 1]) as file:
            return json.loads(file.readline())["loss"]

    def loss(model):
        with torch.no_grad():
            outputs = model(inputs).logits.flatten(0, 1).double()
            return torch.nn.functional.cross_entropy(outputs, targets.flatten()).item()

    def logits(model):
        with torch.no_grad():
            return model(inputs).logits

    def same_keys(source, folder):
        found = keys(folder)
        return [key for key, value in keys(source).items() if found.get(key) != value]

    source, same, trained, further, again, raw = [
        f"{case}/{name}" for name in ["source", "same", "trained", "further", "again", "raw"]]
    os.makedirs(source)
    torch.manual_seed(0)
    tokenizer.save_pretrained(source)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.generation_config.temperature = 0.7
    model.generation_config.do_sample = True
    model.save_pretrained(source, max_shard_size="20KB" if shards else "5GB")
    changed = dict(keys(source), use_cache=False, license="mit", task_specific_params={"a": 1})
    with open(f"{source}/config.json", "w") as file:
        json.dump(changed, file)

    short = 0
    first = train(source, 1, 0, "--weight-decay", 0, "--export-hf", same, *shards)
    before, exported = load(source), load(same)
    short += check(case, torch.equal(logits(before), logits(exported)), "logits of an export without training")
    short += check(case, abs(loss(before) - first) < TOLERANCE, f"losses {first} and {loss(before)}")
    short += check(case, not same_keys(source, same), f"keys, except {same_keys(source, same)}")
    short += check(case, side_files(source) == side_files(same), "files")
    read = AutoTokenizer.from_pretrained(same)
    is_same = read(TEXT)["input_ids"] == ids.tolist() and read.chat_template == tokenizer.chat_template
    short += check(case, is_same, "tokenizer")
    found = AutoModelForCausalLM.from_pretrained(same, dtype="auto").dtype
    short += check(case, found == dtype, f"dtype {found}")

    train(source, 5, 1e-3, "--export-hf", trained, "--export-dtype", "f32")
    ours, model = train(trained, 1, 0), load(trained)
    short += check(case, abs(loss(model) - ours) < TOLERANCE and ours < first, f"trained: {ours} and {loss(model)}")

    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs).logits.flatten(0, 1), targets.flatten()).backward()
        optimizer.step()
    model.save_pretrained(further)
    tokenizer.save_pretrained(further)
    ours, model = train(further, 1, 0, "--weight-decay", 0, "--export-hf", again), load(further)
    short += check(case, abs(loss(model) - ours) < TOLERANCE, f"trained further: {ours} and {loss(model)}")
    short += check(case, torch.equal(logits(model), logits(load(again))), "logits of an export again")
    short += check(case, not same_keys(further, again), f"keys again, except {same_keys(further, again)}")

    # Names in memory, such as those of stacked experts, and a module around the model.
    shutil.copytree(further, raw)
    tensors = {f"module.{name}": tensor.contiguous() for name, tensor in model.state_dict().items()}
    if config.tie_word_embeddings:
        tensors.pop("module.lm_head.weight")
    safetensors.torch.save_file(tensors, f"{raw}/model.safetensors")
    ours = train(raw, 1, 0)
    return short + check(case, abs(loss(model) - ours) < TOLERANCE, f"names in memory: {ours}")


def main():
    transformers.logging.set_verbosity_error()
    programs = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("text.txt", "w") as file:
            file.write(TEXT)
        short = sum(run_case(programs, case) for case in sys.argv[2:] or CASES)
        os.chdir("/")
    print(f"{short} fall short")
    sys.exit(short > 0)


if __name__ == "__main__":
    main()

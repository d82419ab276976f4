#!/usr/bin/env bash
# Packs into .gpu/ what check.py runs on a machine with a GPU, which needs Python with PyTorch and no Rust. Takes the
# same processor architecture and a C library no older than the one here.
set -euo pipefail
cd "$(dirname "$0")/../.."

FEATURES=(--release --locked --features cuda)
# Tests that run on a GPU where MESHWRIGHT_TEST_DEVICE=cuda, and those of what talks to the vendor's libraries.
TESTS="attention combine elements embedding loss map models norm optim random reduce rope routing softmax"

rm -rf .gpu
mkdir -p .gpu/tests .gpu/processes .gpu/bin

# Prints "name path" of every test binary.
binaries() {
    cargo test "$@" --no-run --message-format=json-render-diagnostics | python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message.get("profile", {}).get("test"):
        print(message["target"]["name"], message["executable"])'
}

binaries --release --locked -p meshwright-gpu-sim | while read -r name path; do
    if [[ " $TESTS " == *" $name "* ]]; then
        strip -s -o ".gpu/tests/$name" "$path"
    elif [[ $name == processes ]]; then
        strip -s -o ".gpu/processes/$name" "$path"
    fi
done

cargo build "${FEATURES[@]}" -p meshwright-examples --example train_llama --example train_gpt2
cargo build "${FEATURES[@]}" -p meshwright-bench --bin gpu
cargo build "${FEATURES[@]}" -p meshwright --bin meshwright
for program in examples/train_llama examples/train_gpt2 gpu meshwright; do
    strip -s -o ".gpu/bin/$(basename "$program")" "target/release/$program"
done
# A third of their size, since every test holds the runtime.
tar -C .gpu -czf .gpu/programs.tar.gz tests processes bin
rm -r .gpu/tests .gpu/processes .gpu/bin
cp bench/gpu/check.py bench/gpu/models.py bench/gpu/torch_train.py .gpu/
du -sh .gpu

#!/usr/bin/env bash
# Packs into .gpu/ what check.py runs on a machine with a GPU, which needs Python with PyTorch and no Rust. Takes the
# same processor architecture and a C library no older than the one here.
#
# Kernels are compiled here for the architectures of ARCHITECTURES (default: sm_90a), if NVRTC is found; MESHWRIGHT_CUDA_LIBS
# names its folder. It should have the version of the GPU machine's NVRTC, which compiles them else.
set -euo pipefail
cd "$(dirname "$0")/../.."

FEATURES=(--release --locked --features cuda)
# Test programs that check.py runs.
TESTS="attention collectives combine cudnn_device elements embedding endings loss map models norm optim processes random reduce rope routing rows softmax"

rm -rf .gpu
mkdir -p .gpu/tests .gpu/bin .gpu/kernels

# Prints "name path" of every test program.
binaries() {
    cargo test "$@" --no-run --message-format=json-render-diagnostics | python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message.get("profile", {}).get("test"):
        print(message["target"]["name"], message["executable"])'
}

{
    binaries --release --locked -p meshwright-gpu-sim
    binaries "${FEATURES[@]}" -p meshwright --test cudnn_device
} | while read -r name path; do
    if [[ " $TESTS " == *" $name "* ]]; then
        strip -s -o ".gpu/tests/$name" "$path"
    fi
done
for name in $TESTS; do
    [[ -e .gpu/tests/$name ]] || { echo "error: there is no test program $name" >&2; exit 1; }
done

cargo build "${FEATURES[@]}" -p meshwright-examples --example train_llama --example train_gpt2
cargo build "${FEATURES[@]}" -p meshwright-bench --bin gpu
cargo build "${FEATURES[@]}" -p meshwright --bin meshwright
for program in examples/train_llama examples/train_gpt2 gpu meshwright; do
    strip -s -o ".gpu/bin/$(basename "$program")" "target/release/$program"
done

for architecture in ${ARCHITECTURES-sm_90a}; do
    MESHWRIGHT_CACHE=.gpu/kernels .gpu/bin/gpu --compile "$architecture" ||
        echo "no kernels are packed for $architecture: they are compiled on the GPU machine"
done

# A third of their size, since every test holds the runtime.
tar -C .gpu -czf .gpu/programs.tar.gz tests bin kernels
rm -r .gpu/tests .gpu/bin .gpu/kernels
cp -r bench/gpu/check.py bench/gpu/models.py bench/gpu/torch_train.py bench/gpu/README.md bench/gpu/kit .gpu/
rm -rf .gpu/kit/__pycache__
du -sh .gpu

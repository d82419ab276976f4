#!/usr/bin/env bash
# Packs into .gpu/ what check.py runs on a machine with a GPU, which needs Python with PyTorch and no Rust. Takes the
# same CPU architecture and a C library no older than the one here.
#
# Kernels are compiled here for the architectures of ARCHITECTURES (default: sm_90a), if NVRTC is found;
# MESHWRIGHT_CUDA_LIBS names its folder. It should have the version of the GPU machine's NVRTC, which compiles them
# else.
set -euo pipefail
cd "$(dirname "$0")/../.."

# The test program, whose modules check.py runs, and the other programs that it runs.
TEST="device"
PROGRAMS="train_llama train_gpt2 train_mixtral gpu meshwright"

rm -rf .gpu
mkdir -p .gpu/tests .gpu/bin .gpu/kernels

# One build for all, so that each crate is compiled once.
cargo build --release --locked -p meshwright -p meshwright-device-tests -p meshwright-examples -p meshwright-bench \
    --features meshwright/cuda,meshwright-examples/cuda,meshwright-bench/cuda \
    --example train_llama --example train_gpt2 --example train_mixtral --bin gpu --bin meshwright --test "$TEST" \
    --message-format=json-render-diagnostics | python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable"):
        print("tests" if message["profile"]["test"] else "bin", message["target"]["name"], message["executable"])
' | while read -r folder name path; do
    if [[ " $TEST $PROGRAMS " == *" $name "* ]]; then
        strip -s -o ".gpu/$folder/$name" "$path"
    fi
done
for path in "tests/$TEST" $(printf 'bin/%s ' $PROGRAMS); do
    [[ -e .gpu/$path ]] || { echo "error: there is no .gpu/$path" >&2; exit 1; }
done

for architecture in ${ARCHITECTURES-sm_90a}; do
    MESHWRIGHT_CACHE=.gpu/kernels .gpu/bin/gpu --compile "$architecture" ||
        echo "no kernels are packed for $architecture: they are compiled on the GPU machine"
done

# Every program contains the runtime, and this compression looks back further than one of them.
XZ_OPT=-7 tar -C .gpu -cJf .gpu/programs.tar.xz tests bin kernels
rm -r .gpu/tests .gpu/bin .gpu/kernels
cp -r bench/gpu/check.py bench/gpu/models.py bench/gpu/torch_train.py bench/gpu/README.md bench/gpu/kit .gpu/
rm -rf .gpu/kit/__pycache__
du -sh .gpu

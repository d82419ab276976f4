#!/bin/sh
# Creates bench/pytorch/.venv with the pinned PyTorch and transformers, for the speed benchmark and
# for tests/reference/generate.py. Needs Python 3.11 or newer and, with the default (CUDA) build of
# torch, about 6 GB of disk; a CPU-only build serves as well, if pip is configured to find one.
set -eu
cd "$(dirname "$0")"
"${PYTHON:-python3}" -m venv .venv
.venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt
.venv/bin/python -c "import torch, transformers as t; print('torch', torch.__version__, 'transformers', t.__version__)"

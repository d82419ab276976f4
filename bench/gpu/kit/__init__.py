"""The parts of check.py: what is run on a machine with a GPU, and how results are kept."""

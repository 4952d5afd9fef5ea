#!/usr/bin/env bash
# Run by Snakemake in the new conda environment, from the folder of the Snakefile.
set -euo pipefail
python -m pip install --no-deps -r requirements/cpu.lock
python -m pip install --no-deps -e .

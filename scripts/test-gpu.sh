#!/usr/bin/env bash
# Tests the nccl backend with the real libraries on a machine with GPUs.
#
#   scripts/test-gpu.sh [--results FOLDER] [--bin FOLDER] [--libraries FOLDER] [--only TEXT]... [--step-seconds S]
#   scripts/test-gpu.sh --pack FILE.tar.xz
#
# The first form prints a row for each step as it ends, writes FOLDER/results.json, and ends with 0 if nothing failed. Without a
# GPU it says so in one line and ends with 1. The second form packs what a machine without compilers or network needs.
set -euo pipefail
command -v python3 >/dev/null || { echo "test-gpu: python3 is not installed"; exit 1; }
exec python3 -B "$(dirname "$0")/test_gpu.py" "$@"

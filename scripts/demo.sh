#!/usr/bin/env bash
# Installs what is missing, builds comm-opt, and schedules two programs: a small training step that one can read, and the
# backward graph of Llama-3-8B on 64 ranks, with tensor parallelism, as PyTorch traced it. Prints the tables and says where the timelines are.
#
#   scripts/demo.sh [--no-install]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh

install=yes
for argument in "$@"; do
  case "$argument" in
  --no-install) install=no ;;
  *) fail "unknown argument $argument: scripts/demo.sh [--no-install]" ;;
  esac
done

setup "$install" without-python
say "building comm-opt (build/)"
build_tree comm-opt

out=build/demo
mkdir -p "$out"

# schedule NAME INPUT: comm-opt's own output is the table.
schedule() {
  local name=$1 input=$2
  say "scheduling $input for 8-way H100 nodes, at no more memory than it takes as it is"
  build/bin/comm-opt "$input" --reorder-comm-overlap --comm-machine=h100-sxm \
    --comm-report="$out/$name.json" --comm-timeline="$out/$name.html" -o "$out/$name.mlir"
  build/bin/comm-opt "$out/$name.mlir" -o /dev/null # what was written is a valid program
  say "the scheduled program is $out/$name.mlir, the numbers are $out/$name.json,"
  say "and the timeline before and after is $out/$name.html (open it in a browser)"
}

schedule two_layer_fsdp docs/examples/two_layer_fsdp.mlir
schedule llama3-8b-backward test/Graphs/llama3-8b-64-tp8-kernels-bw.mlirbc
say "source scripts/env.sh puts comm-opt into the PATH of this shell"

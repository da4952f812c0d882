#!/usr/bin/env bash
# Builds the tools with gcc, released and without MPI, NCCL and benchmarks (build/gcc, warnings are errors), and runs the
# IR tests of the dialect, the passes and the conversion there. So each switch is built once, and each of two compilers.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh

require_tools
command -v g++ >/dev/null || {
  say "left out: the build with gcc, which is not installed"
  exit 0
}
mkdir -p build
cmake --preset gcc >build/gcc-configure.log 2>&1 || {
  cat build/gcc-configure.log
  fail "configuring failed"
}
start=$SECONDS
cmake --build --preset gcc >build/gcc-build.log 2>&1 || {
  tail -n 60 build/gcc-build.log
  fail "the build with gcc failed; all of its output is in build/gcc-build.log"
}
say "built with gcc in $((SECONDS - start)) s"
/usr/lib/llvm-22/bin/lit -sv build/gcc/test/Dialect build/gcc/test/Transforms build/gcc/test/Conversion

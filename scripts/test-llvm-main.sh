#!/usr/bin/env bash
# Builds MLIR from LLVM's sources (build/llvm-main), the tools against it (build/on-llvm-main), and runs the IR tests. It tells early what
# the next release of LLVM will break, and runs once a week (.github/workflows/weekly.yml). LLVM alone takes hours on four cores.
#
#   scripts/test-llvm-main.sh SOURCES     SOURCES: a checkout of llvm-project
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh

[ -f "${1:-}/llvm/CMakeLists.txt" ] || fail "expected a checkout of llvm-project, got '${1:-}': scripts/test-llvm-main.sh SOURCES"
require_tools
sources=$(cd "$1" && pwd) llvm=$PWD/build/llvm-main tree=build/on-llvm-main
mkdir -p build

# The options that matter are those of Debian's packages: shared libraries, run-time type information, the targets that the passes use.
cmake -G Ninja -S "$sources/llvm" -B "$llvm" -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang-22 -DCMAKE_CXX_COMPILER=clang++-22 \
  -DLLVM_USE_LINKER=lld -DLLVM_CCACHE_BUILD=ON -DLLVM_PARALLEL_LINK_JOBS=2 -DLLVM_ENABLE_PROJECTS=mlir "-DLLVM_TARGETS_TO_BUILD=Native;NVPTX" \
  -DLLVM_BUILD_LLVM_DYLIB=ON -DLLVM_LINK_LLVM_DYLIB=ON -DMLIR_LINK_MLIR_DYLIB=ON -DLLVM_ENABLE_RTTI=ON \
  -DLLVM_INCLUDE_TESTS=OFF -DLLVM_INCLUDE_BENCHMARKS=OFF -DLLVM_INCLUDE_EXAMPLES=OFF >build/llvm-main-configure.log 2>&1 || {
  cat build/llvm-main-configure.log
  fail "configuring LLVM failed"
}
start=$SECONDS
ninja -C "$llvm" >build/llvm-main-build.log 2>&1 || {
  tail -n 60 build/llvm-main-build.log
  fail "building LLVM failed; all of its output is in build/llvm-main-build.log"
}
say "built MLIR of $(git -C "$sources" rev-parse --short HEAD) in $((SECONDS - start)) s"

cmake --preset dev -B "$tree" -DMLIR_DIR="$llvm/lib/cmake/mlir" -DCOMMSCHED_ANY_LLVM=ON -DLLVM_EXTERNAL_LIT="$sources/llvm/utils/lit/lit.py" \
  -DCOMMSCHED_ENABLE_MPI=OFF -DCOMMSCHED_ENABLE_BENCHMARKS=OFF >build/on-llvm-main-configure.log 2>&1 || {
  cat build/on-llvm-main-configure.log
  fail "configuring failed"
}
# Every file is compiled, so that one list has all that has to change.
ninja -k 0 -C "$tree" check-commsched

#!/usr/bin/env bash
# Builds with address and undefined-behaviour sanitizers (build/asan) and runs there what needs no Python: the IR tests, the
# unit tests, and the mutations of the test inputs. libMLIR itself is not instrumented; our code over it is. Then builds the
# runtime with the thread sanitizer (build/tsan) and runs its tests, faults included, three times in random order.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh

require_tools
options=(-DCOMMSCHED_ENABLE_BENCHMARKS=OFF -DCOMMSCHED_ENABLE_PYTHON=OFF -DCOMMSCHED_ENABLE_MPI=OFF)
cmake --preset asan "${options[@]}" >build/asan-configure.log 2>&1 || {
  cat build/asan-configure.log
  fail "configuring failed"
}
start=$SECONDS
ninja -C build/asan >build/asan-build.log 2>&1 || {
  tail -n 60 build/asan-build.log
  fail "the build failed; all of its output is in build/asan-build.log"
}
say "built in $((SECONDS - start)) s"
say "left out under the sanitizers: MPI (its library leaks), the plug-in (stock mlir-opt cannot load an instrumented library),"
say "  the consumer project, docs and Python (tested once above)"
ctest --test-dir build/asan --output-on-failure --no-tests=error -LE no-sanitizer

cmake --preset tsan "${options[@]}" >build/tsan-configure.log 2>&1 || {
  cat build/tsan-configure.log
  fail "configuring failed"
}
start=$SECONDS
ninja -C build/tsan RuntimeTests RuntimeSeamTests RuntimePlainC >build/tsan-build.log 2>&1 || {
  tail -n 60 build/tsan-build.log
  fail "the build failed; all of its output is in build/tsan-build.log"
}
say "built the runtime with the thread sanitizer in $((SECONDS - start)) s"
build/tsan/bin/RuntimeTests --gtest_brief=1 --gtest_repeat=3 --gtest_shuffle
build/tsan/bin/RuntimeSeamTests --gtest_brief=1
build/tsan/bin/RuntimePlainC

#!/usr/bin/env bash
# Builds with address and undefined-behaviour sanitizers (build/asan) and runs there what needs no Python: the IR tests, the
# unit tests, and the mutations of the test inputs. libMLIR itself is not instrumented; our code over it is. Then builds the
# runtime with the thread sanitizer (build/tsan) and runs its tests, faults included, three times in random order, and those of
# the mpi backend with a progress thread.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh

require_tools
options=(-DCOMMSCHED_ENABLE_BENCHMARKS=OFF -DCOMMSCHED_ENABLE_MPI=ON)
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
say "left out under the sanitizers: random programs and faults over MPI, programs against numpy,"
say "  the plug-in (stock mlir-opt cannot load an instrumented library),"
say "  the gaps and the interruption of searches on training graphs (equal integers, ten times later), the transformer step on 8 ranks (2 and 4 run),"
say "  most of the random problems of long unit tests, of strands, of the oracles of streams and of certificates,"
say "  1,000 ranks in little memory (the sanitizers reserve more addresses than the test allows),"
say "  scripts/test-gpu.sh (it packs and runs uninstrumented programs),"
say "  the consumer project, docs and Python (tested once above)"
ctest --test-dir build/asan --output-on-failure --no-tests=error --timeout "$COMMSCHED_HANG_SECONDS" -j"$(nproc)" -LE no-sanitizer
print_skipped build/asan

cmake --preset tsan "${options[@]}" >build/tsan-configure.log 2>&1 || {
  cat build/tsan-configure.log
  fail "configuring failed"
}
start=$SECONDS
ninja -C build/tsan EmulatorTests RuntimeNcclTests RuntimeTests RuntimeSeamTests RuntimePlainC RuntimeControlTests RuntimeControlScenario RuntimeMpiTests \
  >build/tsan-build.log 2>&1 || {
  tail -n 60 build/tsan-build.log
  fail "the build failed; all of its output is in build/tsan-build.log"
}
say "built the runtime with the thread sanitizer in $((SECONDS - start)) s"
build/tsan/bin/RuntimeTests --gtest_brief=1 --gtest_repeat=3 --gtest_shuffle
build/tsan/bin/RuntimeSeamTests --gtest_brief=1
build/tsan/bin/RuntimePlainC
build/tsan/bin/RuntimeControlTests --gtest_brief=1
abi=$(sed -n 's/^#define COMMRT_ABI_VERSION \([0-9]*\)u$/\1/p' include/CommSched/Runtime/Runtime.h)
python3 -B test/Runtime/control_scenarios.py build/tsan/bin/RuntimeControlScenario "$abi"
# The emulated CUDA runtime, with a thread for each stream and in random orders: a removed wait is a race in each.
build/tsan/bin/EmulatorTests --gtest_brief=1
for seed in 0 1 2; do
  CUDA_EMU_SCHEDULE=random CUDA_EMU_SEED=$seed build/tsan/bin/EmulatorTests --gtest_brief=1
done
COMMRT_CUDART_LIBRARY=$PWD/build/tsan/lib/libcudart_emu.so COMMRT_NCCL_LIBRARY=$PWD/build/tsan/lib/libnccl_emu.so \
  COMMRT_CUBLASLT_LIBRARY=$PWD/build/tsan/lib/libcublaslt_emu.so build/tsan/bin/RuntimeNcclTests --gtest_brief=1
# Open MPI is not instrumented: what it does in threads of its own, and between processes, looks like races.
export TSAN_OPTIONS="suppressions=$PWD/scripts/tsan-open-mpi.supp ignore_noninstrumented_modules=1"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
COMMRT_PROGRESS_THREAD=1 mpirun -np 2 build/tsan/bin/RuntimeMpiTests --gtest_brief=1

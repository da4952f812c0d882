// Tests that a limit can hold for the arena of the buffer plan, which may be larger than the peak of live bytes, and that
// a limit which no plan meets is an error that names the smallest arena.
// RUN: comm-opt %s --comm-schedule="limit=arena" --comm-report -o /dev/null 2>&1 | FileCheck %s
// RUN: not comm-opt %s --comm-schedule="limit=arena memory-limit-bytes=4096" -o /dev/null 2>&1 | FileCheck %s --check-prefix=SMALL
// RUN: comm-opt %s --comm-schedule="memory-limit-bytes=24000" -o /dev/null
// RUN: not comm-opt %s --comm-schedule="limit=arena memory-limit-bytes=24000" -o /dev/null 2>&1 | FileCheck %s --check-prefix=ARENA
// RUN: not comm-opt %s --comm-schedule="limit=stack" -o /dev/null 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// CHECK: buffer plan       24.0 KiB    24.0 KiB
// SMALL: error: cannot reduce peak memory to the limit of 4.00 KiB (4096 bytes)
// ARENA: arena-limit.mlir:[[@LINE+5]]:1: error: cannot reduce the arena of the buffers to the limit of 23.4 KiB (24000 bytes); smallest arena found: 24.0 KiB (576 bytes over)
// UNKNOWN: stack

comm.group @dp #comm.iota<[1, 2]>

func.func @f(%a: tensor<1000xf32>, %b: tensor<1000xf32>) -> (tensor<2000xf32>, tensor<2000xf32>) {
  %g0 = comm.all_gather %a on @dp : (tensor<1000xf32>) -> !comm.future<tensor<2000xf32>>
  %w0 = comm.wait %g0 : !comm.future<tensor<2000xf32>>
  %x = comm.compute "x"(%w0) {comm.cost = #comm.cost<time = 20000>} : (tensor<2000xf32>) -> tensor<2000xf32>
  %g1 = comm.all_gather %b on @dp : (tensor<1000xf32>) -> !comm.future<tensor<2000xf32>>
  %w1 = comm.wait %g1 : !comm.future<tensor<2000xf32>>
  %y = comm.compute "y"(%w1) {comm.cost = #comm.cost<time = 20000>} : (tensor<2000xf32>) -> tensor<2000xf32>
  return %x, %y : tensor<2000xf32>, tensor<2000xf32>
}

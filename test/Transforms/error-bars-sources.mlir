// RUN: %python %S/Inputs/error_bars_profile.py %commsched_src_root/machines/h100-sxm.json > %t.bars.json
// RUN: comm-opt %s --comm-report="machine=%t.bars.json" -o /dev/null 2>&1 | FileCheck %s
// RUN: comm-opt %s --comm-report -o /dev/null 2>&1 | FileCheck %s --check-prefix=GIVEN

comm.group @dp #comm.iota<[1, 8]>
comm.group @tp #comm.iota<[1, 4]>

// Tests the other sources: a gather on another group shape is scaled, a reduction that was not measured is NCCL's model,
// an operation without a model is guessed, a product of known work is analytic, and a given time has the bar that it states.
// Nested work takes part: the product inside the loop is 5 us shorter at the low end of its bar.
// CHECK: sources: 12 operations, 3 collectives
// CHECK: makespan            126 us
// CHECK: error bars    before 121 us to
// CHECK: costs         2 given, 0 measured, 1 scaled, 2 analytic, 2 guessed; 2 with error bars

// Tests that a bar in the program alone is reported, too: nothing is measured then.
// GIVEN: costs         2 given, 0 measured, 0 scaled, 3 analytic, 2 guessed; 1 with error bars
func.func @sources(%x: tensor<256x256xf32>, %w: tensor<32768xf32>, %n: index) -> (tensor<256x256xf32>, tensor<131072xf32>, tensor<32768xf32>, tensor<32768xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %f1 = comm.all_gather %w on @tp : (tensor<32768xf32>) -> !comm.future<tensor<131072xf32>>
  %f2 = comm.all_reduce sum %w on @dp : (tensor<32768xf32>) -> !comm.future<tensor<32768xf32>>
  %f3 = comm.all_reduce sum %w on @tp {comm.cost = #comm.cost<time = 50000, time_lo = 40000, time_hi = 65000>} : (tensor<32768xf32>) -> !comm.future<tensor<32768xf32>>
  %a = comm.compute "unknown"(%x) : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %b = comm.compute "known"(%a) {comm.cost = #comm.cost<flops = 1000000000>} : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %c = comm.compute "given"(%b) {comm.cost = #comm.cost<time = 5000>} : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %d = scf.for %k = %c0 to %n step %c1 iter_args(%acc = %c) -> (tensor<256x256xf32>) {
    %e = comm.compute "product"(%acc) : (tensor<256x256xf32>) -> tensor<256x256xf32>
    scf.yield %e : tensor<256x256xf32>
  }
  %r1 = comm.wait %f1 : !comm.future<tensor<131072xf32>>
  %r2 = comm.wait %f2 : !comm.future<tensor<32768xf32>>
  %r3 = comm.wait %f3 : !comm.future<tensor<32768xf32>>
  return %d, %r1, %r2, %r3 : tensor<256x256xf32>, tensor<131072xf32>, tensor<32768xf32>, tensor<32768xf32>
}

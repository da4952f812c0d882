// RUN: comm-opt %s --reorder-comm-overlap=memory-budget-ratio=-0.25 --comm-report=%t.json | FileCheck %s
// RUN: %python -c "import json, sys; p = json.load(open(sys.argv[1]))['functions'][0]['peak_bytes']; print(p['before'], p['limit'], p['after'])" %t.json | FileCheck %s --check-prefix=PEAK
// RUN: not comm-opt %s --reorder-comm-overlap=memory-budget-ratio=-0.75 2>&1 | FileCheck %s --check-prefix=TOO-LOW
// RUN: not comm-opt %s --comm-schedule=memory-budget-ratio=-1 2>&1 | FileCheck %s --check-prefix=RANGE
// RUN: not comm-opt %S/../Graphs/mamba-hybrid-32-bw.mlirbc --reorder-comm-overlap="memory-limit-bytes=1000000 effort=0" 2>&1 | FileCheck %s --check-prefix=BOUND

// Tests that a negative ratio asks for a peak below that of the input, and that an error states the lowest peak if there is
// no such order.
// PEAK: 2052 1539 1036
// TOO-LOW: error: cannot reduce peak memory to the limit of 513 B (513 bytes); lowest peak of all orders: 1.01 KiB (519 bytes over)
// Of a larger block, it also states a bound below which no order comes.
// BOUND: error: {{.*}}cannot reduce peak memory to the limit of 977 KiB (1000000 bytes); lowest peak found: {{.*}} bytes over); no order has a peak below 2.33 GiB (2499302848 bytes over)
// RANGE: error: memory-budget-ratio=-1.00: expected a fraction above -1 and at most 1e6
// CHECK-LABEL: func.func @two_at_once
// CHECK: comm.compute "make"
// CHECK: comm.compute "use"
// CHECK: comm.compute "make"
// CHECK: comm.compute "use"
comm.group @dp #comm.iota<[1, 4]>
func.func @two_at_once(%x: tensor<256xf32>) -> tensor<1xf32> {
  %a = comm.compute "make"(%x) {comm.cost = #comm.cost<time = 100>} : (tensor<256xf32>) -> tensor<256xf32>
  %b = comm.compute "make"(%x) {comm.cost = #comm.cost<time = 100>} : (tensor<256xf32>) -> tensor<256xf32>
  %c = comm.compute "use"(%a) {comm.cost = #comm.cost<time = 100>} : (tensor<256xf32>) -> tensor<1xf32>
  %d = comm.compute "use"(%b) {comm.cost = #comm.cost<time = 100>} : (tensor<256xf32>) -> tensor<1xf32>
  %f = comm.all_reduce sum %c on @dp {comm.cost = #comm.cost<time = 500>} : (tensor<1xf32>) -> !comm.future<tensor<1xf32>>
  %g = comm.wait %f : !comm.future<tensor<1xf32>>
  %r = comm.compute "join"(%g, %d) {comm.cost = #comm.cost<time = 100>} : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xf32>
  return %r : tensor<1xf32>
}

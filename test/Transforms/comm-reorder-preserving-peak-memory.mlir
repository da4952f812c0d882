// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="memory-budget-ratio=0" | FileCheck %s
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="memory-budget-ratio=0 memory-recompute=true" \
// RUN:   --remarks-filter="comm-reorder.*" 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="memory-budget-ratio=10" | FileCheck %s --check-prefix=WIDE
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="memory-limit-bytes=1000000" | FileCheck %s --check-prefix=WIDE
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="memory-budget-ratio=10 use-runtime-estimates=true" \
// RUN:   | FileCheck %s --check-prefix=EST
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="memory-budget-ratio=10 unsafe-collectives-reorder=false" \
// RUN:   | FileCheck %s --check-prefix=SAFE
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="memory-budget-ratio=10 move-limit=0" | FileCheck %s --check-prefix=NONE

comm.group @dp #comm.iota<[1, 4]>

// Tests that a start moves left together with the cast that it depends on, as far as the budget allows: beside
// "small" its cast's 32 and the gathered 128 bytes would stand next to the 512 bytes that "small" reads.
// CHECK-LABEL: func @within_the_peak
// CHECK-NEXT: compute "big"
// CHECK-NEXT: compute "small"
// CHECK-NEXT: compute "cast"
// CHECK-NEXT: comm.all_gather
// CHECK-NEXT: compute "free"
// REMARK: [Passed] moved | {{.*}}"'comm.all_gather' passed 1 operation and took 1 operation along; exposed {{.*}}; stopped by peak memory: passing 'small' at {{.*}}.mlir:{{[0-9]+}}:{{[0-9]+}} would reach 704 B, limit 544 B"
// Tests that with a wide budget, or a wide limit in its place, nothing but dependences limits prefetching.
// WIDE-LABEL: func @within_the_peak
// WIDE-NEXT: compute "cast"
// WIDE-NEXT: comm.all_gather
// WIDE-NEXT: compute "big"
// Tests that a limit of no moves leaves everything in its place.
// NONE-LABEL: func @within_the_peak
// NONE-NEXT: compute "big"
// NONE-NEXT: compute "small"
// NONE-NEXT: compute "free"
// NONE-NEXT: compute "cast"
func.func @within_the_peak(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<32xf32>) {
  %b = comm.compute "big"(%x) : (tensor<8xf32>) -> tensor<128xf32>
  %s = comm.compute "small"(%b) : (tensor<128xf32>) -> tensor<8xf32>
  %q = comm.compute "free"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %c = comm.compute "cast"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %f = comm.all_gather %c on @dp : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  %r = comm.wait %f : !comm.future<tensor<32xf32>>
  return %s, %q, %r : tensor<8xf32>, tensor<8xf32>, tensor<32xf32>
}

// Tests that nothing moves where there is nothing to gain: the start is first already.
// CHECK-LABEL: func @nothing_to_gain
// CHECK-NEXT: comm.all_reduce
// CHECK-NEXT: compute "free"
// CHECK-NEXT: comm.wait
// REMARK: [Missed] stayed | {{.*}}"'comm.all_reduce' stayed; {{.*}}; end of the block"
func.func @nothing_to_gain(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %q = comm.compute "free"(%x) {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>) -> tensor<8xf32>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  return %q, %r : tensor<8xf32>, tensor<8xf32>
}

// Tests that without estimates a matrix multiplication is not taken along, and that it is with them.
// WIDE-LABEL: func @behind_a_matmul
// WIDE-NEXT: compute "free"
// WIDE-NEXT: compute "aten.mm"
// WIDE-NEXT: comm.all_reduce
// EST-LABEL: func @behind_a_matmul
// EST-NEXT: compute "aten.mm"
// EST-NEXT: comm.all_reduce
// EST-NEXT: compute "free"
// REMARK: [Missed] stayed | {{.*}}"'comm.all_reduce' stayed; {{.*}}; data dependence on 'aten.mm' at {{.*}}.mlir:[[@LINE+3]]:8"
func.func @behind_a_matmul(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %q = comm.compute "free"(%x) {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>) -> tensor<8xf32>
  %m = comm.compute "aten.mm"(%x) {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>) -> tensor<8xf32>
  %f = comm.all_reduce sum %m on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  return %q, %r : tensor<8xf32>, tensor<8xf32>
}

// Tests that with estimates a start stops as soon as compute covers it, here one pointwise operation and a bit: it does
// not go on to the front, where its result would only lie about.
// EST-LABEL: func @stops_when_hidden
// EST-NEXT: compute "first"
// EST-NEXT: comm.all_reduce
// EST-NEXT: compute "pointwise"
// WIDE-LABEL: func @stops_when_hidden
// WIDE-NEXT: comm.all_reduce
func.func @stops_when_hidden(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %a = comm.compute "first"(%x) {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> tensor<8xf32>
  %b = comm.compute "pointwise"(%a) {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> tensor<8xf32>
  %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  return %b, %r : tensor<8xf32>, tensor<8xf32>
}

// Tests that a start passes another one only where collectives may be reordered.
// WIDE-LABEL: func @two_starts
// WIDE-NEXT: comm.all_reduce sum
// WIDE-NEXT: compute "producer"
// WIDE-NEXT: comm.all_reduce max
// SAFE-LABEL: func @two_starts
// SAFE-NEXT: compute "producer"
// SAFE-NEXT: comm.all_reduce max
// SAFE-NEXT: comm.all_reduce sum
func.func @two_starts(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %p = comm.compute "producer"(%x) {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>) -> tensor<8xf32>
  %g = comm.all_reduce max %p on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %s = comm.wait %g : !comm.future<tensor<8xf32>>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  return %s, %r : tensor<8xf32>, tensor<8xf32>
}

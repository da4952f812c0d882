// RUN: comm-opt %s --comm-sink-waits-preserving-peak-memory | FileCheck %s
// RUN: comm-opt %s --comm-sink-waits-preserving-peak-memory="swap-with-collectives=true" | FileCheck %s --check-prefix=SWAP
// RUN: comm-opt %s --comm-sink-waits-preserving-peak-memory="use-runtime-estimates=true memory-recompute=true" \
// RUN:   --remarks-filter="comm-sink.*" 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

comm.group @dp #comm.iota<[1, 4]>

// Tests that a reduce-scatter's wait sinks through the chain that adds its result to a gradient, which it takes along.
// CHECK-LABEL: func @grad_accumulation
// CHECK: comm.reduce_scatter
// CHECK-NEXT: compute "backward"
// CHECK-NEXT: comm.wait
// CHECK-NEXT: compute "scale"
// CHECK-NEXT: compute "add"
// REMARK: [Passed] moved | {{.*}}"'comm.wait' passed 1 operation and took 2 operations along; exposed 0 ns, was 300 ns; stopped by already hidden"
func.func @grad_accumulation(%x: tensor<8xf32>, %grad: tensor<2xf32>) -> (tensor<8xf32>, tensor<2xf32>) {
  %f = comm.reduce_scatter sum %x on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<2xf32>>
  %r = comm.wait %f : !comm.future<tensor<2xf32>>
  %s = comm.compute "scale"(%r) {comm.cost = #comm.cost<time = 10>} : (tensor<2xf32>) -> tensor<2xf32>
  %a = comm.compute "add"(%grad, %s) {comm.cost = #comm.cost<time = 10>} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %b = comm.compute "backward"(%x) {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> tensor<8xf32>
  return %b, %a : tensor<8xf32>, tensor<2xf32>
}

// Tests that a wait stops in front of the next start, and passes it when told to.
// CHECK-LABEL: func @next_start
// CHECK: comm.wait
// CHECK-NEXT: comm.all_reduce max
// SWAP-LABEL: func @next_start
// SWAP: comm.all_reduce sum
// SWAP-NEXT: comm.all_reduce max
// SWAP-NEXT: comm.wait
func.func @next_start(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %f = comm.all_reduce sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  %g = comm.all_reduce max %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %s = comm.wait %g : !comm.future<tensor<8xf32>>
  return %r, %s : tensor<8xf32>, tensor<8xf32>
}

// Tests that a collective that compute covers anyway is left alone, with no time below zero.
// REMARK: [Analysis] hidden | {{.*}}"'comm.wait' stayed; exposed 0 ns; already hidden"
func.func @hidden(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 10>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %q = comm.compute "long"(%x) {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> tensor<8xf32>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  %p = comm.compute "longer"(%x) {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> tensor<8xf32>
  return %q, %r, %p : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

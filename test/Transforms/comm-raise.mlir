// RUN: comm-opt %s --comm-raise | FileCheck %s
// RUN: comm-opt %s --comm-raise --comm-raise | FileCheck %s
// RUN: comm-opt %s --comm-raise="collective-order=program" | FileCheck %s
// RUN: comm-opt %s --comm-raise --remarks-filter="comm-raise" 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

comm.group @dp #comm.iota<[1, 4]>

// Tests that a start goes up to what it depends on, past what it does not; its wait stays.
// CHECK-LABEL: func @past_independent
// CHECK: compute "producer"
// CHECK-NEXT: comm.all_reduce
// CHECK-NEXT: compute "free"
// CHECK-NEXT: comm.wait
func.func @past_independent(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %p = comm.compute "producer"(%x) {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>) -> tensor<8xf32>
  %q = comm.compute "free"(%x) {comm.cost = #comm.cost<time = 200>} : (tensor<8xf32>) -> tensor<8xf32>
  // REMARK: [Passed] moved | Category:comm-raise | {{.*}}'comm.all_reduce' passed 1 operation; exposed 100 ns, was 300 ns: data dependence on 'producer' at [[PLACE:.*.mlir:[0-9]+:[0-9]+]]; stopped by data dependence on 'producer' at [[PLACE]]"
  %f = comm.all_reduce sum %p on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  return %q, %r : tensor<8xf32>, tensor<8xf32>
}

// Tests that an all-reduce in place rises no further than the last reader of what it overwrites: relu comes first.
// CHECK-LABEL: func @after_reader
// CHECK: compute "mm"
// CHECK-NEXT: compute "relu"
// CHECK-NEXT: comm.all_reduce
// CHECK-NEXT: compute "free"
func.func @after_reader(%a: memref<8xf32>, %m: memref<8xf32>, %r: memref<8xf32>, %t: tensor<8xf32>) -> tensor<8xf32> {
  comm.compute "mm"(%a, %m) mutates [1] : (memref<8xf32>, memref<8xf32>) -> ()
  comm.compute "relu"(%m, %r) mutates [1] : (memref<8xf32>, memref<8xf32>) -> ()
  %q = comm.compute "free"(%t) : (tensor<8xf32>) -> tensor<8xf32>
  %f = comm.all_reduce sum %m into %m on @dp : (memref<8xf32>) -> !comm.future<memref<8xf32>>
  %w = comm.wait %f keeping (%m, %m : memref<8xf32>, memref<8xf32>) : !comm.future<memref<8xf32>>
  return %q : tensor<8xf32>
}

// Tests that starts keep their launch order when the waits come in the other order.
// CHECK-LABEL: func @waits_reversed
// CHECK: comm.all_reduce sum %arg0
// CHECK-NEXT: comm.all_reduce max %arg0
// CHECK-NEXT: compute "free"
func.func @waits_reversed(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %q = comm.compute "free"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %f = comm.all_reduce sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %g = comm.all_reduce max %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %s = comm.wait %g : !comm.future<tensor<8xf32>>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  return %q, %r, %s : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// Tests that a dead-end reduce-scatter, whose result nothing but the return uses, starts where its gradient is made and
// does not drift to the end.
// CHECK-LABEL: func @dead_end
// CHECK: compute "grad1"
// CHECK-NEXT: comm.reduce_scatter
// CHECK-NEXT: compute "grad0"
func.func @dead_end(%x: tensor<8xf32>) -> (tensor<2xf32>, tensor<8xf32>) {
  %p = comm.compute "grad1"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %q = comm.compute "grad0"(%p) : (tensor<8xf32>) -> tensor<8xf32>
  %f = comm.reduce_scatter sum %p on @dp : (tensor<8xf32>) -> !comm.future<tensor<2xf32>>
  %r = comm.wait %f : !comm.future<tensor<2xf32>>
  return %r, %q : tensor<2xf32>, tensor<8xf32>
}

// Tests that a block of a loop is reordered like a function's.
// CHECK-LABEL: func @in_a_loop
// CHECK: scf.for
// CHECK-NEXT: comm.all_reduce
// CHECK-NEXT: compute "free"
func.func @in_a_loop(%x: tensor<8xf32>, %n: index) -> tensor<8xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %out = scf.for %i = %zero to %n step %one iter_args(%v = %x) -> tensor<8xf32> {
    %q = comm.compute "free"(%x) : (tensor<8xf32>) -> tensor<8xf32>
    %f = comm.all_reduce sum %v on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
    %r = comm.wait %f : !comm.future<tensor<8xf32>>
    %s = comm.compute "both"(%q, %r) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    scf.yield %s : tensor<8xf32>
  }
  return %out : tensor<8xf32>
}

// Tests that a start passes the allocation of a tensor, which touches no other memory, although no interface says so.
// CHECK-LABEL: func @past_allocation
// CHECK-NEXT: comm.all_reduce
// CHECK-NEXT: bufferization.alloc_tensor
func.func @past_allocation(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %c = bufferization.alloc_tensor() copy(%y) : tensor<8xf32>
  %f = comm.all_reduce sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  return %c, %r : tensor<8xf32>, tensor<8xf32>
}

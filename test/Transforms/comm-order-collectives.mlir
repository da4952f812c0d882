// RUN: comm-opt %s --comm-order-collectives | FileCheck %s --check-prefix=PIN
// RUN: comm-opt %s --comm-order-collectives --comm-reorder-preserving-peak-memory="memory-budget-ratio=10" | FileCheck %s
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="memory-budget-ratio=10" | FileCheck %s --check-prefix=FREE

comm.group @dp #comm.iota<[1, 4]>

// Tests that the order of collectives is marked, and that a later pass keeps it where it would not have done so.
// PIN-COUNT-2: comm.pinned
// CHECK-LABEL: func @two
// CHECK-NEXT: compute "producer"
// CHECK-NEXT: comm.all_reduce max
// CHECK-NEXT: comm.all_reduce sum
// FREE-LABEL: func @two
// FREE-NEXT: comm.all_reduce sum
func.func @two(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %p = comm.compute "producer"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %g = comm.all_reduce max %p on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %f = comm.all_reduce sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %s = comm.wait %g : !comm.future<tensor<8xf32>>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  return %s, %r : tensor<8xf32>, tensor<8xf32>
}

// Tests that a single collective needs no mark.
// PIN-LABEL: func @one
// PIN-NOT: pinned
func.func @one(%x: tensor<8xf32>) -> tensor<8xf32> {
  %f = comm.all_reduce sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  return %r : tensor<8xf32>
}

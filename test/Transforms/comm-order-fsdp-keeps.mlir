// RUN: split-file %s %t
// RUN: comm-opt %t/gathers.mlir --comm-order-fsdp --comm-raise | FileCheck %s
// RUN: comm-opt %t/gathers.mlir --comm-order-fsdp --comm-sink-waits | FileCheck %s
// RUN: comm-opt %t/gathers.mlir --comm-order-fsdp --comm-reorder-compute-for-overlap | FileCheck %s
// RUN: comm-opt %t/gathers.mlir --comm-order-fsdp --comm-reorder-preserving-peak-memory=memory-budget-ratio=100 | FileCheck %s
// RUN: comm-opt %t/gathers.mlir --comm-order-fsdp --comm-sink-waits-preserving-peak-memory=memory-budget-ratio=100 | FileCheck %s
// RUN: comm-opt %t/gathers.mlir --comm-order-fsdp --comm-schedule=memory-budget-ratio=100 | FileCheck %s
// RUN: comm-opt %t/gathers.mlir --comm-order-fsdp --comm-bucket --comm-raise | FileCheck %s
// RUN: comm-opt %t/gathers.mlir --comm-order-fsdp --comm-raise --comm-order-fsdp | FileCheck %s --check-prefixes=CHECK,AGAIN
// RUN: comm-opt %t/gathers.mlir --comm-raise | FileCheck %s --check-prefix=ALONE
// RUN: comm-opt %t/torn.mlir --comm-sink-waits --remarks-filter=comm-sink-waits | FileCheck %s --check-prefix=TORN
// RUN: comm-opt %t/bucket.mlir --comm-bucket --remarks-filter=comm-bucket 2>&1 >/dev/null | FileCheck %s --check-prefix=BUCKET

// Tests that no later pass undoes the groups: every half is one run of operations, and the second gather's first half
// comes after the first one's second half. Without the marks, comm-raise puts both gathers in front.
// CHECK-LABEL: func @two_layers
// CHECK: comm.fsdp.all_gather_copy_in %arg0 {{.*}}comm.unit = 0
// CHECK-NEXT: comm.all_gather {{.*}}comm.unit = 0
// CHECK: comm.wait {{.*}}comm.unit = 1
// CHECK-NEXT: comm.fsdp.split_with_sizes_copy {{.*}}comm.unit = 1
// CHECK: comm.fsdp.all_gather_copy_in %arg1 {{.*}}comm.after_unit = 1 : i64, comm.unit = 2
// CHECK-NEXT: comm.all_gather {{.*}}comm.unit = 2
// CHECK: comm.wait {{.*}}comm.unit = 3
// CHECK-NEXT: comm.fsdp.split_with_sizes_copy {{.*}}comm.unit = 3
// ALONE-LABEL: func @two_layers
// ALONE-NEXT: comm.fsdp.all_gather_copy_in
// ALONE-NEXT: comm.all_gather
// ALONE-NEXT: comm.fsdp.all_gather_copy_in
// ALONE-NEXT: comm.all_gather

// Tests that the pass begins anew: the numbers are the same the second time.
// AGAIN-NOT: comm.unit = 4

// Tests that a unit of any operations is kept, also where nothing but the unit forbids to come between: the wait sinks
// together with what reads it.
// TORN-LABEL: func @any_unit
// TORN-NEXT: comm.all_reduce
// TORN-NEXT: compute "free"
// TORN-NEXT: comm.wait
// TORN-NEXT: compute "reader"
// TORN-NEXT: compute "end"

// Tests that collectives of units are not merged.
// BUCKET: the start or its wait belongs to a unit

//--- gathers.mlir
comm.group @dp #comm.iota<[1, 4]>
func.func @two_layers(%a: tensor<4xf32>, %b: tensor<4xf32>, %x: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
  %s0, %b0 = comm.fsdp.all_gather_copy_in %a on @dp : (tensor<4xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  %f0 = comm.all_gather %s0 into %b0 on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %u = comm.compute "u"(%x) {comm.cost = #comm.cost<time = 1000>} : (tensor<16xf32>) -> tensor<16xf32>
  %w0 = comm.wait %f0 : !comm.future<tensor<16xf32>>
  %p0 = comm.fsdp.split_with_sizes_copy %w0 sizes [4] : (tensor<16xf32>) -> tensor<16xf32>
  %v = comm.compute "v"(%u, %p0) {comm.cost = #comm.cost<time = 1000>} : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  %s1, %b1 = comm.fsdp.all_gather_copy_in %b on @dp : (tensor<4xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  %f1 = comm.all_gather %s1 into %b1 on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<16xf32>>
  %p1 = comm.fsdp.split_with_sizes_copy %w1 sizes [4] : (tensor<16xf32>) -> tensor<16xf32>
  %z = comm.compute "z"(%v, %p1) {comm.cost = #comm.cost<time = 1000>} : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  return %z, %v : tensor<16xf32>, tensor<16xf32>
}

//--- torn.mlir
comm.group @dp #comm.iota<[1, 4]>
func.func @any_unit(%x: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
  %f = comm.all_reduce sum %x on @dp : (tensor<16xf32>) -> !comm.future<tensor<16xf32>>
  %w = comm.wait %f {comm.unit = 7 : i64} : !comm.future<tensor<16xf32>>
  %r = comm.compute "reader"(%x) {comm.unit = 7 : i64} : (tensor<16xf32>) -> tensor<16xf32>
  %u = comm.compute "free"(%x) : (tensor<16xf32>) -> tensor<16xf32>
  %e = comm.compute "end"(%w, %u, %r) : (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  return %e, %u : tensor<16xf32>, tensor<16xf32>
}

//--- bucket.mlir
comm.group @dp #comm.iota<[1, 4]>
func.func @merged(%a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
  %f0 = comm.all_gather %a on @dp {comm.unit = 0 : i64} : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %f1 = comm.all_gather %b on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<16xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<16xf32>>
  return %w0, %w1 : tensor<16xf32>, tensor<16xf32>
}

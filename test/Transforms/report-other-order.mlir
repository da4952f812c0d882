// Tests that a pass that knows no order of collectives may get below the bound for that order: comm-bucket merges the
// gathers before and behind the reduction, and the report has the bound for any order.

// RUN: comm-opt %s --reorder-comm-overlap='machine=h100-sxm collective-order=group memory-budget-ratio=100 \
// RUN:   passes=comm-bucket,comm-raise' -o %t.mlir 2>&1 | FileCheck %s
// RUN: FileCheck %s --check-prefix=MERGED --input-file=%t.mlir

comm.group @dp #comm.iota<[1, 2]>

// CHECK-NOT: error
// CHECK: lower bound {{.*}} of group @dp, uncertified; at most {{[0-9.]+}} % from optimal
// MERGED: comm.fsdp.all_gather_copy_in {{.*}}, {{.*}} on @dp
func.func @gathers_around_a_reduction(%a: tensor<4x6xf32>, %b: tensor<4x6xf32>) {
  %slice = comm.compute "slice"(%b) aliases [0] : (tensor<4x6xf32>) -> tensor<4x3xf32>
  %f = comm.all_gather %a on @dp : (tensor<4x6xf32>) -> !comm.future<tensor<8x6xf32>>
  %x = comm.wait %f : !comm.future<tensor<8x6xf32>>
  %g = comm.all_reduce max %slice on @dp : (tensor<4x3xf32>) -> !comm.future<tensor<4x3xf32>>
  %y = comm.wait %g : !comm.future<tensor<4x3xf32>>
  %clone = comm.compute "clone"(%slice) {comm.cost = #comm.cost<bytes = 96>} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %h = comm.all_gather %clone on @dp : (tensor<4x3xf32>) -> !comm.future<tensor<8x3xf32>>
  %z = comm.wait %h : !comm.future<tensor<8x3xf32>>
  return
}

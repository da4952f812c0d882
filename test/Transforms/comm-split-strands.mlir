// RUN: comm-opt %s --comm-split-strands="force max-strands=2" --split-input-file | FileCheck %s

// Tests that a product and its reduction are split along the rows, that weights stay whole, and that the result is joined.
comm.group @tp #comm.iota<[1, 2]>
// CHECK-LABEL: func @rows
// CHECK-SAME: %[[X:.*]]: tensor<8x16xf32>, %[[W:.*]]: tensor<16x12xf32>
func.func @rows(%x: tensor<8x16xf32>, %w: tensor<16x12xf32>) -> tensor<8x12xf32> {
  // CHECK: %[[X0:.*]] = tensor.extract_slice %[[X]][0, 0] [4, 16] [1, 1]
  // CHECK: %[[Y0:.*]] = comm.compute "aten.mm"(%[[X0]], %[[W]])
  // CHECK-SAME: #comm.cost<flops = 1536, bytes = 1216>
  // CHECK: %[[X1:.*]] = tensor.extract_slice %[[X]][4, 0] [4, 16] [1, 1]
  // CHECK: %[[Y1:.*]] = comm.compute "aten.mm"(%[[X1]], %[[W]])
  // CHECK: %[[F0:.*]] = comm.all_reduce sum %[[Y0]] on @tp : (tensor<4x12xf32>)
  // CHECK: %[[F1:.*]] = comm.all_reduce sum %[[Y1]] on @tp : (tensor<4x12xf32>)
  // CHECK: %[[S0:.*]] = comm.wait %[[F0]]
  // CHECK: %[[S1:.*]] = comm.wait %[[F1]]
  // CHECK: %[[R0:.*]] = comm.compute "aten.relu"(%[[S0]])
  // CHECK: %[[R1:.*]] = comm.compute "aten.relu"(%[[S1]])
  // CHECK: %[[E:.*]] = tensor.empty() : tensor<8x12xf32>
  // CHECK: %[[J:.*]] = tensor.insert_slice %[[R0]] into %[[E]][0, 0] [4, 12] [1, 1]
  // CHECK: %[[K:.*]] = tensor.insert_slice %[[R1]] into %[[J]][4, 0] [4, 12] [1, 1]
  // CHECK: return %[[K]]
  %y = comm.compute "aten.mm"(%x, %w) {comm.cost = #comm.cost<flops = 3072, bytes = 1664>} : (tensor<8x16xf32>, tensor<16x12xf32>) -> tensor<8x12xf32>
  %f = comm.all_reduce sum %y on @tp : (tensor<8x12xf32>) -> !comm.future<tensor<8x12xf32>>
  %s = comm.wait %f : !comm.future<tensor<8x12xf32>>
  %r = comm.compute "aten.relu"(%s) : (tensor<8x12xf32>) -> tensor<8x12xf32>
  return %r : tensor<8x12xf32>
}

// -----

// Tests that an operation of unknown name joins the strands, and that they part again behind it.
comm.group @tp #comm.iota<[1, 2]>
// CHECK-LABEL: func @unknown_is_a_barrier
func.func @unknown_is_a_barrier(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  // CHECK: comm.all_reduce sum %{{.*}} : (tensor<4x16xf32>)
  // CHECK: comm.all_reduce sum %{{.*}} : (tensor<4x16xf32>)
  // CHECK: tensor.insert_slice
  // CHECK: %[[J:.*]] = tensor.insert_slice
  // CHECK: %[[U:.*]] = comm.compute "mystery"(%[[J]]) : (tensor<8x16xf32>)
  // CHECK: tensor.extract_slice %[[U]][0, 0] [4, 16]
  // CHECK: comm.all_reduce max %{{.*}} : (tensor<4x16xf32>)
  %f = comm.all_reduce sum %x on @tp : (tensor<8x16xf32>) -> !comm.future<tensor<8x16xf32>>
  %s = comm.wait %f : !comm.future<tensor<8x16xf32>>
  %u = comm.compute "mystery"(%s) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %r = comm.compute "aten.relu"(%u) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %g = comm.all_reduce max %r on @tp : (tensor<8x16xf32>) -> !comm.future<tensor<8x16xf32>>
  %t = comm.wait %g : !comm.future<tensor<8x16xf32>>
  return %t : tensor<8x16xf32>
}

// -----

// Tests that a gather is not split along the dimension that it concatenates, but along another one, whose parts are not
// contiguous: they are copied.
comm.group @tp #comm.iota<[1, 2]>
// CHECK-LABEL: func @other_dimension
func.func @other_dimension(%x: tensor<8x16xf32>) -> tensor<16x16xf32> {
  // CHECK: %[[S:.*]] = tensor.extract_slice %{{.*}}[0, 0] [8, 8] [1, 1]
  // CHECK: %[[C:.*]] = comm.compute "copy"(%[[S]])
  // CHECK: comm.all_gather %[[C]] on @tp : (tensor<8x8xf32>) -> !comm.future<tensor<16x8xf32>>
  %f = comm.all_gather %x on @tp : (tensor<8x16xf32>) -> !comm.future<tensor<16x16xf32>>
  %g = comm.wait %f : !comm.future<tensor<16x16xf32>>
  return %g : tensor<16x16xf32>
}

// -----

// Tests that comm.split states a rule for an operation that has none, and that an empty list forbids a split.
comm.group @tp #comm.iota<[1, 2]>
// CHECK-LABEL: func @given_rules
func.func @given_rules(%x: tensor<8x16xf32>, %w: tensor<3xf32>) -> tensor<8x16xf32> {
  // CHECK-COUNT-2: comm.compute "scaled"({{.*}}) : (tensor<4x16xf32>, tensor<3xf32>) -> tensor<4x16xf32>
  // CHECK: comm.compute "aten.relu"({{.*}}) {comm.split = []} : (tensor<8x16xf32>)
  %a = comm.compute "scaled"(%x, %w) {comm.split = [array<i64: 0, -1, 0>]} : (tensor<8x16xf32>, tensor<3xf32>) -> tensor<8x16xf32>
  %f = comm.all_reduce sum %a on @tp : (tensor<8x16xf32>) -> !comm.future<tensor<8x16xf32>>
  %s = comm.wait %f : !comm.future<tensor<8x16xf32>>
  %r = comm.compute "aten.relu"(%s) {comm.split = []} : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %r : tensor<8x16xf32>
}

// -----

// Tests that values whose storage is written in place stay whole, and pinned operations, too.
comm.group @tp #comm.iota<[1, 2]>
// CHECK-LABEL: func @storage_that_is_written
func.func @storage_that_is_written(%x: tensor<8x16xf32>, %y: tensor<8x16xf32>) -> tensor<8x16xf32> {
  // CHECK: comm.compute "aten.relu"(%{{.*}}) : (tensor<8x16xf32>)
  // CHECK: comm.compute "aten.neg"(%{{.*}}) {comm.pinned} : (tensor<8x16xf32>)
  // CHECK-COUNT-2: comm.all_reduce sum %{{.*}} : (tensor<4x16xf32>)
  // CHECK: comm.compute "aten.add_"(%{{.*}}) mutates [0]
  %a = comm.compute "aten.relu"(%x) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %b = comm.compute "aten.neg"(%a) {comm.pinned} : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %f = comm.all_reduce sum %b on @tp : (tensor<8x16xf32>) -> !comm.future<tensor<8x16xf32>>
  %s = comm.wait %f : !comm.future<tensor<8x16xf32>>
  comm.compute "aten.add_"(%a, %s) mutates [0] : (tensor<8x16xf32>, tensor<8x16xf32>) -> ()
  return %a : tensor<8x16xf32>
}

// -----

// Tests that parts are computed in their places in the whole, and that a view of a joined value is a view of the whole.
comm.group @tp #comm.iota<[1, 2]>
// CHECK-LABEL: func @joined_views
func.func @joined_views(%x: tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<2x4x16xf32>) {
  // CHECK: comm.compute "aten.relu"(%{{.*}}) : (tensor<4x16xf32>) -> tensor<4x16xf32>
  // CHECK: comm.compute "aten.relu"(%{{.*}}) : (tensor<4x16xf32>) -> tensor<4x16xf32>
  // CHECK: tensor.insert_slice {{.*}} {in_place}
  // CHECK: %[[J:.*]] = tensor.insert_slice {{.*}} {in_place}
  // CHECK: %[[V:.*]] = comm.compute "aten.view"(%[[J]]) aliases [0] : (tensor<8x16xf32>) -> tensor<2x4x16xf32>
  // CHECK: return %[[J]], %[[V]]
  %f = comm.all_reduce sum %x on @tp : (tensor<8x16xf32>) -> !comm.future<tensor<8x16xf32>>
  %s = comm.wait %f : !comm.future<tensor<8x16xf32>>
  %r = comm.compute "aten.relu"(%s) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %v = comm.compute "aten.view"(%r) aliases [0] : (tensor<8x16xf32>) -> tensor<2x4x16xf32>
  return %r, %v : tensor<8x16xf32>, tensor<2x4x16xf32>
}

// -----

// Tests that the wait for a collective in symmetric memory stays whole, as the collective does, between others that are split.
comm.group @tp #comm.iota<[1, 2]>
// CHECK-LABEL: func @symmetric
func.func @symmetric(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  // CHECK-COUNT-2: comm.all_reduce sum {{.*}} : (tensor<4x4xf32>)
  // CHECK: %[[F:.*]] = comm.all_reduce sum {{.*}}comm.symmetric{{.*}} : (tensor<8x4xf32>)
  // CHECK: comm.wait %[[F]]
  // CHECK-COUNT-2: comm.all_reduce sum {{.*}} : (tensor<4x4xf32>)
  %f = comm.all_reduce sum %x on @tp : (tensor<8x4xf32>) -> !comm.future<tensor<8x4xf32>>
  %a = comm.wait %f : !comm.future<tensor<8x4xf32>>
  %g = comm.all_reduce sum %a on @tp {comm.symmetric = array<i1: false, true>} : (tensor<8x4xf32>) -> !comm.future<tensor<8x4xf32>>
  %b = comm.wait %g : !comm.future<tensor<8x4xf32>>
  %h = comm.all_reduce sum %b on @tp : (tensor<8x4xf32>) -> !comm.future<tensor<8x4xf32>>
  %c = comm.wait %h : !comm.future<tensor<8x4xf32>>
  return %c : tensor<8x4xf32>
}

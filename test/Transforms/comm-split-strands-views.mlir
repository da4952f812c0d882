// RUN: comm-opt %s --comm-split-strands="force max-strands=2" --split-input-file | FileCheck %s

// Tests that a kernel reads a slice that is not contiguous where it is, as its weight's columns, and that the exchange of
// its results is split, too.
comm.group @ep #comm.iota<[1, 2]>
// CHECK-LABEL: func @columns_of_a_weight
// CHECK-SAME: %[[X:.*]]: tensor<8x16xf32>, %[[W:.*]]: tensor<16x12xf32>
func.func @columns_of_a_weight(%x: tensor<8x16xf32>, %w: tensor<16x12xf32>) -> tensor<8x12xf32> {
  // CHECK: %[[W0:.*]] = tensor.extract_slice %[[W]][0, 0] [16, 6] [1, 1]
  // CHECK-NOT: "copy"
  // CHECK: comm.compute "aten.mm"(%[[X]], %[[W0]]) : (tensor<8x16xf32>, tensor<16x6xf32>) -> tensor<8x6xf32>
  // CHECK: comm.all_to_all %{{.*}} : (tensor<8x6xf32>)
  %y = comm.compute "aten.mm"(%x, %w) : (tensor<8x16xf32>, tensor<16x12xf32>) -> tensor<8x12xf32>
  %f = comm.all_to_all %y on @ep : (tensor<8x12xf32>) -> !comm.future<tensor<8x12xf32>>
  %s = comm.wait %f : !comm.future<tensor<8x12xf32>>
  return %s : tensor<8x12xf32>
}

// -----

// Tests that a view that keeps the strides of a slice is no reason for a copy, and that one that joins dimensions is.
comm.group @ep #comm.iota<[1, 2]>
// CHECK-LABEL: func @views_of_slices
func.func @views_of_slices(%x: tensor<8x4x6xf32>) -> (tensor<8x4x6xf32>, tensor<8x24xf32>) {
  // CHECK: %[[S:.*]] = tensor.extract_slice %{{.*}}[0, 0, 0] [8, 2, 6]
  // CHECK: %[[P:.*]] = comm.compute "aten.permute"(%[[S]]) aliases [0]
  // CHECK: comm.compute "aten.relu"(%[[P]])
  // CHECK: %[[C:.*]] = comm.compute "copy"(%[[S]])
  // CHECK: comm.compute "aten.view"(%[[C]]) aliases [0] : (tensor<8x2x6xf32>) -> tensor<8x12xf32>
  %p = comm.compute "aten.permute"(%x) aliases [0] : (tensor<8x4x6xf32>) -> tensor<6x8x4xf32>
  %r = comm.compute "aten.relu"(%p) : (tensor<6x8x4xf32>) -> tensor<6x8x4xf32>
  %q = comm.compute "aten.permute"(%r) : (tensor<6x8x4xf32>) -> tensor<8x4x6xf32>
  %f = comm.all_to_all %q on @ep : (tensor<8x4x6xf32>) -> !comm.future<tensor<8x4x6xf32>>
  %s = comm.wait %f : !comm.future<tensor<8x4x6xf32>>
  %v = comm.compute "aten.view"(%x) aliases [0] {comm.split = [array<i64: 1, 1>]} : (tensor<8x4x6xf32>) -> tensor<8x24xf32>
  %t = comm.compute "aten.relu"(%v) : (tensor<8x24xf32>) -> tensor<8x24xf32>
  %g = comm.all_to_all %t on @ep : (tensor<8x24xf32>) -> !comm.future<tensor<8x24xf32>>
  %u = comm.wait %g : !comm.future<tensor<8x24xf32>>
  return %s, %u : tensor<8x4x6xf32>, tensor<8x24xf32>
}

// -----

// Tests that a selection of rows, and their replacement, divide along the columns: tokens on their way to experts.
comm.group @ep #comm.iota<[1, 2]>
// CHECK-LABEL: func @rows_by_number
func.func @rows_by_number(%x: tensor<10x16xf32>, %rows: tensor<6xi64>, %zero: tensor<12x16xf32>) -> tensor<12x16xf32> {
  // CHECK: comm.compute "aten.index.Tensor"(%{{.*}}, %{{.*}}) : (tensor<10x8xf32>, tensor<6xi64>) -> tensor<6x8xf32>
  // CHECK: comm.compute "aten.index_put"(%{{.*}}, %{{.*}}, %{{.*}}) : (tensor<12x8xf32>, tensor<6xi64>, tensor<6x8xf32>) -> tensor<12x8xf32>
  // CHECK: comm.all_to_all %{{.*}} : (tensor<12x8xf32>)
  %a = comm.compute "aten.index.Tensor"(%x, %rows) : (tensor<10x16xf32>, tensor<6xi64>) -> tensor<6x16xf32>
  %b = comm.compute "aten.index_put"(%zero, %rows, %a) : (tensor<12x16xf32>, tensor<6xi64>, tensor<6x16xf32>) -> tensor<12x16xf32>
  %f = comm.all_to_all %b on @ep : (tensor<12x16xf32>) -> !comm.future<tensor<12x16xf32>>
  %s = comm.wait %f : !comm.future<tensor<12x16xf32>>
  return %s : tensor<12x16xf32>
}

// -----

// Tests that a selection whose shapes do not tell the selected dimension, or by a mask, stays whole.
comm.group @ep #comm.iota<[1, 2]>
// CHECK-LABEL: func @unclear_selection
func.func @unclear_selection(%x: tensor<8x8xf32>, %rows: tensor<8xi64>, %mask: tensor<6xi8>, %y: tensor<6x8xf32>) -> (tensor<8x8xf32>, tensor<6x8xf32>) {
  // CHECK: comm.compute "aten.index.Tensor"(%{{.*}}, %{{.*}}) : (tensor<8x8xf32>, tensor<8xi64>) -> tensor<8x8xf32>
  // CHECK: comm.compute "aten.index.Tensor"(%{{.*}}, %{{.*}}) : (tensor<6x8xf32>, tensor<6xi8>) -> tensor<6x8xf32>
  %a = comm.compute "aten.index.Tensor"(%x, %rows) : (tensor<8x8xf32>, tensor<8xi64>) -> tensor<8x8xf32>
  %b = comm.compute "aten.index.Tensor"(%y, %mask) : (tensor<6x8xf32>, tensor<6xi8>) -> tensor<6x8xf32>
  %f = comm.all_to_all %a on @ep : (tensor<8x8xf32>) -> !comm.future<tensor<8x8xf32>>
  %g = comm.all_to_all %b on @ep : (tensor<6x8xf32>) -> !comm.future<tensor<6x8xf32>>
  %s = comm.wait %f : !comm.future<tensor<8x8xf32>>
  %t = comm.wait %g : !comm.future<tensor<6x8xf32>>
  return %s, %t : tensor<8x8xf32>, tensor<6x8xf32>
}

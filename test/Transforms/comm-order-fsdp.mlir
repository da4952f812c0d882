// RUN: comm-opt %s --comm-order-fsdp | FileCheck %s
// RUN: comm-opt %s --comm-order-fsdp --comm-order-fsdp | FileCheck %s

comm.group @dp #comm.iota<[1, 4]>

// Tests that casts, copy-in and gather come together, and wait and copy-out; and that the first layer's wait comes before
// the second layer's copy-in although its start was in front of it.
// CHECK-LABEL: func @two_layers
// CHECK-NEXT: compute "cast0"
// CHECK-NEXT: comm.fsdp.all_gather_copy_in
// CHECK-NEXT: comm.all_gather
// CHECK-NEXT: comm.wait
// CHECK-NEXT: comm.fsdp.split_with_sizes_copy
// CHECK-NEXT: compute "cast1"
// CHECK-NEXT: comm.fsdp.all_gather_copy_in
// CHECK-NEXT: comm.all_gather
// CHECK-NEXT: compute "layer0"
// CHECK-NEXT: comm.wait
// CHECK-NEXT: comm.fsdp.split_with_sizes_copy
// CHECK-NEXT: compute "layer1"
func.func @two_layers(%a: tensor<4xf32>, %b: tensor<4xf32>, %x: tensor<8xf32>) -> tensor<8xf32> {
  %c0 = comm.compute "cast0"(%a) : (tensor<4xf32>) -> tensor<4xbf16>
  %c1 = comm.compute "cast1"(%b) : (tensor<4xf32>) -> tensor<4xbf16>
  %s0, %g0 = comm.fsdp.all_gather_copy_in %c0 on @dp : (tensor<4xbf16>) -> (tensor<4xbf16>, tensor<16xbf16>)
  %f0 = comm.all_gather %s0 into %g0 on @dp : (tensor<4xbf16>) -> !comm.future<tensor<16xbf16>>
  %s1, %g1 = comm.fsdp.all_gather_copy_in %c1 on @dp : (tensor<4xbf16>) -> (tensor<4xbf16>, tensor<16xbf16>)
  %f1 = comm.all_gather %s1 into %g1 on @dp : (tensor<4xbf16>) -> !comm.future<tensor<16xbf16>>
  %w0 = comm.wait %f0 : !comm.future<tensor<16xbf16>>
  %p0 = comm.fsdp.split_with_sizes_copy %w0 sizes [4] : (tensor<16xbf16>) -> tensor<16xbf16>
  %l0 = comm.compute "layer0"(%x, %p0) : (tensor<8xf32>, tensor<16xbf16>) -> tensor<8xf32>
  %w1 = comm.wait %f1 : !comm.future<tensor<16xbf16>>
  %p1 = comm.fsdp.split_with_sizes_copy %w1 sizes [4] : (tensor<16xbf16>) -> tensor<16xbf16>
  %l1 = comm.compute "layer1"(%l0, %p1) : (tensor<8xf32>, tensor<16xbf16>) -> tensor<8xf32>
  return %l1 : tensor<8xf32>
}

// Tests that reduce-scatters run one after the other: the first one's wait before the second one's copy-in.
// CHECK-LABEL: func @two_gradients
// CHECK: comm.fsdp.chunk_cat
// CHECK-NEXT: comm.reduce_scatter
// CHECK: comm.wait
// CHECK-NEXT: compute "add"
// CHECK: comm.fsdp.chunk_cat
// CHECK-NEXT: comm.reduce_scatter
func.func @two_gradients(%a: tensor<16xf32>, %b: tensor<16xf32>, %acc: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %c0 = comm.fsdp.chunk_cat %a chunks 4 : (tensor<16xf32>) -> tensor<16xf32>
  %f0 = comm.reduce_scatter sum %c0 on @dp : (tensor<16xf32>) -> !comm.future<tensor<4xf32>>
  %c1 = comm.fsdp.chunk_cat %b chunks 4 : (tensor<16xf32>) -> tensor<16xf32>
  %f1 = comm.reduce_scatter sum %c1 on @dp : (tensor<16xf32>) -> !comm.future<tensor<4xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<4xf32>>
  %s1 = comm.compute "view"(%w1) : (tensor<4xf32>) -> tensor<4xf32>
  %w0 = comm.wait %f0 : !comm.future<tensor<4xf32>>
  %s0 = comm.compute "add"(%w0, %acc) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %s0, %s1 : tensor<4xf32>, tensor<4xf32>
}

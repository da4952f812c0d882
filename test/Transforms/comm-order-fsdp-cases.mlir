// RUN: comm-opt %s --comm-order-fsdp | FileCheck %s
// RUN: comm-opt %s --comm-order-fsdp --comm-order-fsdp | FileCheck %s
// RUN: comm-opt %s --comm-order-fsdp --remarks-filter="comm-order-fsdp" 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

comm.group @dp #comm.iota<[1, 4]>

// Tests that a layer that is used again has groups of its own for its second gather, although that one takes the same
// cast and, in place, the same buffers as the first: the cast stays with the first launch, the second copy-out with the
// second wait, and nothing of the second gather moves in front of the first one's wait.
// CHECK-LABEL: func @layer_reused
// CHECK-NEXT: compute "cast"
// CHECK-NEXT: comm.fsdp.all_gather_copy_in
// CHECK-NEXT: comm.all_gather
// CHECK-NEXT: comm.wait
// CHECK-NEXT: comm.fsdp.split_with_sizes_copy
// CHECK-NEXT: compute "layer"
// CHECK-NEXT: comm.fsdp.all_gather_copy_in
// CHECK-NEXT: comm.all_gather
// CHECK-NEXT: compute "norm"
// CHECK-NEXT: comm.wait
// CHECK-NEXT: comm.fsdp.split_with_sizes_copy
// CHECK-NEXT: compute "layer"
// REMARK: 'comm.all_gather' stayed and stands with 4 operations
// REMARK: 'comm.all_gather' passed 1 operation and stands with 3 operations
func.func @layer_reused(%w: tensor<4xf32>, %x: tensor<8xf32>) -> tensor<8xf32> {
  %c = comm.compute "cast"(%w) : (tensor<4xf32>) -> tensor<4xbf16>
  %s0, %g0 = comm.fsdp.all_gather_copy_in %c on @dp : (tensor<4xbf16>) -> (tensor<4xbf16>, tensor<16xbf16>)
  %f0 = comm.all_gather %s0 into %g0 on @dp : (tensor<4xbf16>) -> !comm.future<tensor<16xbf16>>
  %w0 = comm.wait %f0 : !comm.future<tensor<16xbf16>>
  %p0 = comm.fsdp.split_with_sizes_copy %w0 sizes [4] : (tensor<16xbf16>) -> tensor<16xbf16>
  %l0 = comm.compute "layer"(%x, %p0) : (tensor<8xf32>, tensor<16xbf16>) -> tensor<8xf32>
  %s1, %g1 = comm.fsdp.all_gather_copy_in %c on @dp : (tensor<4xbf16>) -> (tensor<4xbf16>, tensor<16xbf16>)
  %n = comm.compute "norm"(%l0) : (tensor<8xf32>) -> tensor<8xf32>
  %f1 = comm.all_gather %s1 into %g1 on @dp : (tensor<4xbf16>) -> !comm.future<tensor<16xbf16>>
  %w1 = comm.wait %f1 : !comm.future<tensor<16xbf16>>
  %p1 = comm.fsdp.split_with_sizes_copy %w1 sizes [4] : (tensor<16xbf16>) -> tensor<16xbf16>
  %l1 = comm.compute "layer"(%n, %p1) : (tensor<8xf32>, tensor<16xbf16>) -> tensor<8xf32>
  return %l1 : tensor<8xf32>
}

// Tests that in memory, where the second gather and the second copy-out write what the first ones wrote, and so follow
// from the first wait, they are no part of its group: a copy-out that only another one leads to is the next use's.
// CHECK-LABEL: func @layer_reused_in_memory
// CHECK: comm.all_gather
// CHECK: comm.wait
// CHECK-NEXT: comm.fsdp.split_with_sizes_copy
// CHECK-NEXT: compute "layer"
// CHECK-NEXT: comm.fsdp.all_gather_copy_in
// CHECK-NEXT: comm.all_gather
// CHECK-NEXT: compute "norm"
// CHECK-NEXT: comm.wait
// CHECK-NEXT: comm.fsdp.split_with_sizes_copy
// CHECK-NEXT: compute "layer"
// REMARK: 'comm.all_gather' {{.*}}stands with 4 operations
// REMARK: 'comm.all_gather' {{.*}}stands with 3 operations
func.func @layer_reused_in_memory(%c: memref<4xbf16>, %x: tensor<8xf32>) -> tensor<8xf32> {
  %g = memref.alloc() : memref<16xbf16>
  %p = memref.alloc() : memref<16xbf16>
  %s0, %g0 = comm.fsdp.all_gather_copy_in %c into %g : memref<16xbf16> on @dp : (memref<4xbf16>) -> (memref<4xbf16>, memref<16xbf16>)
  %f0 = comm.all_gather %s0 into %g0 on @dp : (memref<4xbf16>) -> !comm.future<memref<16xbf16>>
  %w0 = comm.wait %f0 keeping (%s0, %g0 : memref<4xbf16>, memref<16xbf16>) : !comm.future<memref<16xbf16>>
  %p0 = comm.fsdp.split_with_sizes_copy %w0 into %p : memref<16xbf16> sizes [4] : (memref<16xbf16>) -> memref<16xbf16>
  %l0 = comm.compute "layer"(%x, %p) : (tensor<8xf32>, memref<16xbf16>) -> tensor<8xf32>
  %s1, %g1 = comm.fsdp.all_gather_copy_in %c into %g : memref<16xbf16> on @dp : (memref<4xbf16>) -> (memref<4xbf16>, memref<16xbf16>)
  %n = comm.compute "norm"(%l0) : (tensor<8xf32>) -> tensor<8xf32>
  %f1 = comm.all_gather %s1 into %g1 on @dp : (memref<4xbf16>) -> !comm.future<memref<16xbf16>>
  %w1 = comm.wait %f1 keeping (%s1, %g1 : memref<4xbf16>, memref<16xbf16>) : !comm.future<memref<16xbf16>>
  %p1 = comm.fsdp.split_with_sizes_copy %w1 into %p : memref<16xbf16> sizes [4] : (memref<16xbf16>) -> memref<16xbf16>
  %l1 = comm.compute "layer"(%n, %p) : (tensor<8xf32>, memref<16xbf16>) -> tensor<8xf32>
  return %l1 : tensor<8xf32>
}

// Tests that a bucket that is unpacked piece by piece keeps all of its copy-outs.
// CHECK-LABEL: func @piece_by_piece
// CHECK: comm.all_gather
// CHECK-NEXT: compute "norm"
// CHECK-NEXT: comm.wait
// CHECK-NEXT: comm.fsdp.split_with_sizes_copy
// CHECK-NEXT: comm.fsdp.split_with_sizes_copy
// CHECK-NEXT: compute "first"
// REMARK: 'comm.all_gather' stayed and stands with 4 operations
func.func @piece_by_piece(%a: tensor<4xf32>, %b: tensor<2xf32>, %x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %s, %g = comm.fsdp.all_gather_copy_in %a, %b on @dp : (tensor<4xf32>, tensor<2xf32>) -> (tensor<6xf32>, tensor<24xf32>)
  %f = comm.all_gather %s into %g on @dp : (tensor<6xf32>) -> !comm.future<tensor<24xf32>>
  %n = comm.compute "norm"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %w = comm.wait %f : !comm.future<tensor<24xf32>>
  %p = comm.fsdp.split_with_sizes_copy %w sizes [4, 2] members [0] : (tensor<24xf32>) -> tensor<16xf32>
  %l = comm.compute "first"(%n, %p) : (tensor<8xf32>, tensor<16xf32>) -> tensor<8xf32>
  %q = comm.fsdp.split_with_sizes_copy %w sizes [4, 2] members [1] : (tensor<24xf32>) -> tensor<8xf32>
  %m = comm.compute "second"(%l, %q) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %l, %m : tensor<8xf32>, tensor<8xf32>
}

// Tests that what follows from a reduce-scatter's wait stands with it, up to the next copy-in.
// CHECK-LABEL: func @chained_gradients
// CHECK: comm.fsdp.chunk_cat
// CHECK-NEXT: comm.reduce_scatter
// CHECK-NEXT: comm.wait
// CHECK-NEXT: compute "scale"
// CHECK-NEXT: comm.fsdp.chunk_cat
// CHECK-NEXT: comm.reduce_scatter
// REMARK: 'comm.reduce_scatter' {{.*}}stands with 3 operations
// REMARK: 'comm.reduce_scatter' {{.*}}stands with 2 operations
func.func @chained_gradients(%a: tensor<64xf32>) -> tensor<4xf32> {
  %c0 = comm.fsdp.chunk_cat %a chunks 4 : (tensor<64xf32>) -> tensor<64xf32>
  %f0 = comm.reduce_scatter sum %c0 on @dp : (tensor<64xf32>) -> !comm.future<tensor<16xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<16xf32>>
  %s = comm.compute "scale"(%w0) : (tensor<16xf32>) -> tensor<16xf32>
  %c1 = comm.fsdp.chunk_cat %s chunks 4 : (tensor<16xf32>) -> tensor<16xf32>
  %f1 = comm.reduce_scatter sum %c1 on @dp : (tensor<16xf32>) -> !comm.future<tensor<4xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<4xf32>>
  return %w1 : tensor<4xf32>
}

// Tests that a gather's launch cannot be kept together where it leads out of itself and back, and that the remark says so:
// one of its copy-in's inputs comes from another collective, which takes the cast that the launch begins with.
// CHECK-LABEL: func @circle
// CHECK-NEXT: comm.all_reduce
// REMARK: 'comm.all_gather' {{.*}}group dissolved: a dependence leads out of its group and back
func.func @circle(%a: tensor<4xf32>) -> (tensor<32xbf16>, tensor<4xbf16>) {
  %f = comm.all_reduce sum %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %c = comm.compute "cast"(%a) : (tensor<4xf32>) -> tensor<4xbf16>
  %h = comm.all_reduce max %c on @dp : (tensor<4xbf16>) -> !comm.future<tensor<4xbf16>>
  %v = comm.wait %h : !comm.future<tensor<4xbf16>>
  %s, %g = comm.fsdp.all_gather_copy_in %c, %v on @dp : (tensor<4xbf16>, tensor<4xbf16>) -> (tensor<8xbf16>, tensor<32xbf16>)
  %k = comm.all_gather %s into %g on @dp : (tensor<8xbf16>) -> !comm.future<tensor<32xbf16>>
  %w = comm.wait %k : !comm.future<tensor<32xbf16>>
  %r = comm.wait %f : !comm.future<tensor<4xf32>>
  %p = comm.fsdp.split_with_sizes_copy %w sizes [8] : (tensor<32xbf16>) -> tensor<32xbf16>
  return %p, %v : tensor<32xbf16>, tensor<4xbf16>
}

// Tests that gathers without a copy-in, and reduce-scatters without one, have no groups: nothing moves.
// CHECK-LABEL: func @plain
// CHECK-NEXT: comm.all_gather
// CHECK-NEXT: compute "free"
// CHECK-NEXT: comm.wait
// CHECK-NEXT: comm.reduce_scatter
// CHECK-NEXT: compute "also_free"
// CHECK-NEXT: comm.wait
func.func @plain(%a: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %f = comm.all_gather %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %q = comm.compute "free"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %w = comm.wait %f : !comm.future<tensor<16xf32>>
  %h = comm.reduce_scatter sum %w on @dp : (tensor<16xf32>) -> !comm.future<tensor<4xf32>>
  %r = comm.compute "also_free"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %v = comm.wait %h : !comm.future<tensor<4xf32>>
  return %q, %r, %v : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

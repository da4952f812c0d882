// RUN: comm-opt %s | comm-opt | FileCheck %s
// RUN: comm-opt %s --mlir-print-op-generic | comm-opt | FileCheck %s
// RUN: comm-opt %s --emit-bytecode | comm-opt | FileCheck %s
// RUN: comm-opt %s | not grep "comm[.][a-z_]*  "

// Tests that every operation, type and attribute of the dialect survives printing and parsing, with one blank behind each
// operation's name.

// CHECK: comm.group @dp #comm.iota<[1, 4]>
comm.group @dp #comm.iota<[1, 4]>
// CHECK: comm.group private @tp #comm.ranks<{{\[\[}}0, 1], [2, 3]]>
comm.group private @tp #comm.ranks<[[0, 1], [2, 3]]>
// CHECK: comm.group @strided #comm.iota<[8, 64] from [64, 8] transpose [1, 0]>
comm.group @strided #comm.iota<[8, 64] from [64, 8] transpose [1, 0]>

// CHECK-LABEL: func @tensors
// CHECK-SAME: %[[ROWS:[a-z0-9]+]]: index
func.func @tensors(%x: tensor<4x8xf32>, %y: tensor<16x8xf32>, %dest: tensor<16x8xf32>, %rows: index) {
  // CHECK: comm.all_gather %{{.*}} on @dp : (tensor<4x8xf32>) -> !comm.future<tensor<16x8xf32>>
  %ag = comm.all_gather %x on @dp : (tensor<4x8xf32>) -> !comm.future<tensor<16x8xf32>>
  // CHECK: comm.all_gather %{{.*}} into %{{.*}} on @dp : (tensor<4x8xf32>) -> !comm.future<tensor<16x8xf32>>
  %agi = comm.all_gather %x into %dest on @dp : (tensor<4x8xf32>) -> !comm.future<tensor<16x8xf32>>
  // CHECK: comm.all_gather %{{.*}}, %{{.*}} on @dp dim 1 :
  %agc = comm.all_gather %x, %x on @dp dim 1 : (tensor<4x8xf32>, tensor<4x8xf32>) -> !comm.future<tensor<4x32xf32>, tensor<4x32xf32>>
  // CHECK: comm.reduce_scatter avg %{{.*}} on @dp :
  %rs = comm.reduce_scatter avg %y on @dp : (tensor<16x8xf32>) -> !comm.future<tensor<4x8xf32>>
  // CHECK: comm.all_reduce sum %{{.*}} on @tp :
  %ar = comm.all_reduce sum %x on @tp : (tensor<4x8xf32>) -> !comm.future<tensor<4x8xf32>>
  // CHECK: comm.all_reduce scaled_sum scale 2.500000e-01 %{{.*}} on @tp :
  %ars = comm.all_reduce scaled_sum scale 2.5e-01 %x on @tp : (tensor<4x8xf32>) -> !comm.future<tensor<4x8xf32>>
  // CHECK: comm.all_reduce sum %{{.*}} on @tp one_shot :
  %aro = comm.all_reduce sum %x on @tp one_shot : (tensor<4x8xf32>) -> !comm.future<tensor<4x8xf32>>
  // CHECK: comm.all_to_all %{{.*}} on @dp split 1 :
  %a2a = comm.all_to_all %x on @dp split 1 : (tensor<4x8xf32>) -> !comm.future<tensor<16x2xf32>>
  // CHECK: comm.all_to_all %{{.*}} on @tp input_splits [1, 3] output_splits [2, 2] :
  %a2u = comm.all_to_all %x on @tp input_splits [1, 3] output_splits [2, 2] : (tensor<4x8xf32>) -> !comm.future<tensor<4x8xf32>>
  // CHECK: comm.all_to_all %{{.*}} on @tp input_splits [%[[ROWS]], 3] output_splits [0, %[[ROWS]]] : (tensor<4x8xf32>) -> !comm.future<tensor<?x8xf32>>
  %a2d = comm.all_to_all %x on @tp input_splits [%rows, 3] output_splits [0, %rows] : (tensor<4x8xf32>) -> !comm.future<tensor<?x8xf32>>
  // CHECK: comm.broadcast %{{.*}} on @dp root 0 :
  %bc = comm.broadcast %x on @dp root 0 : (tensor<4x8xf32>) -> !comm.future<tensor<4x8xf32>>
  // CHECK: comm.reduce max %{{.*}} on @dp root 1 :
  %rd = comm.reduce max %x on @dp root 1 : (tensor<4x8xf32>) -> !comm.future<tensor<4x8xf32>>
  // CHECK: comm.gather %{{.*}} on @dp root 0 :
  %ga = comm.gather %x on @dp root 0 : (tensor<4x8xf32>) -> !comm.future<tensor<16x8xf32>>
  // CHECK: comm.scatter %{{.*}} on @dp root 3 :
  %sc = comm.scatter %y on @dp root 3 : (tensor<16x8xf32>) -> !comm.future<tensor<4x8xf32>>
  // CHECK: comm.permute %{{.*}} on @dp pairs [0, 1, 1, 2] :
  %pe = comm.permute %x on @dp pairs [0, 1, 1, 2] : (tensor<4x8xf32>) -> !comm.future<tensor<4x8xf32>>
  // CHECK: comm.send %{{.*}} on @dp peer 1 tag 7 : (tensor<4x8xf32>) -> !comm.future<>
  %se = comm.send %x on @dp peer 1 tag 7 : (tensor<4x8xf32>) -> !comm.future<>
  // CHECK: comm.recv on @dp peer 1 : () -> !comm.future<tensor<4x8xf32>>
  %re = comm.recv on @dp peer 1 : () -> !comm.future<tensor<4x8xf32>>
  // CHECK: comm.rank : index
  %rank = comm.rank : index
  // CHECK: comm.barrier on @dp : () -> !comm.future<>
  %ba = comm.barrier on @dp : () -> !comm.future<>
  // CHECK: comm.wait %{{.*}} : !comm.future<tensor<16x8xf32>>
  %w0 = comm.wait %ag : !comm.future<tensor<16x8xf32>>
  // CHECK: comm.wait %{{.*}} : !comm.future<tensor<4x32xf32>, tensor<4x32xf32>>
  %w1:2 = comm.wait %agc : !comm.future<tensor<4x32xf32>, tensor<4x32xf32>>
  // CHECK: comm.wait %{{.*}} : !comm.future<>
  comm.wait %ba : !comm.future<>
  return
}

// CHECK-LABEL: func @memrefs
// CHECK-SAME: memref<16xf32, #comm.symmetric<@dp>>
func.func @memrefs(%x: memref<4xf32>, %y: memref<16xf32>, %s: memref<16xf32, #comm.symmetric<@dp>>) {
  // CHECK: comm.all_gather %{{.*}} into %{{.*}} on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  %f = comm.all_gather %x into %y on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  // CHECK: comm.wait %{{.*}} keeping (%{{.*}}, %{{.*}} : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
  %w = comm.wait %f keeping (%x, %y : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
  return
}

// CHECK-LABEL: func @fsdp
func.func @fsdp(%a: tensor<2x2xf32>, %b: tensor<6xf32>, %flat: tensor<10xbf16>, %param: tensor<24xbf16>) {
  // CHECK: %{{.*}}, %{{.*}} = comm.fsdp.all_gather_copy_in %{{.*}}, %{{.*}} on @dp : (tensor<2x2xf32>, tensor<6xf32>) -> (tensor<10xbf16>, tensor<40xbf16>)
  %slice, %buffer = comm.fsdp.all_gather_copy_in %a, %b on @dp : (tensor<2x2xf32>, tensor<6xf32>) -> (tensor<10xbf16>, tensor<40xbf16>)
  // CHECK: %[[BYTES:.*]], %[[ALL:.*]] = comm.fsdp.all_gather_copy_in %{{.*}}, %{{.*}} on @dp as [bf16, f32] : (tensor<2x2xf32>, tensor<6xf32>) -> (tensor<32xi8>, tensor<128xi8>)
  %bytes, %all = comm.fsdp.all_gather_copy_in %a, %b on @dp as [bf16, f32] : (tensor<2x2xf32>, tensor<6xf32>) -> (tensor<32xi8>, tensor<128xi8>)
  // CHECK: comm.fsdp.split_with_sizes_copy %[[ALL]] sizes [8, 24] : (tensor<128xi8>) -> (tensor<8x2xbf16>, tensor<24xf32>)
  %views:2 = comm.fsdp.split_with_sizes_copy %all sizes [8, 24] : (tensor<128xi8>) -> (tensor<8x2xbf16>, tensor<24xf32>)
  // CHECK: comm.fsdp.split_with_sizes_copy %{{.*}} sizes [4, 6] : (tensor<40xbf16>) -> (tensor<8x2xbf16>, tensor<24xbf16>)
  %p:2 = comm.fsdp.split_with_sizes_copy %buffer sizes [4, 6] : (tensor<40xbf16>) -> (tensor<8x2xbf16>, tensor<24xbf16>)
  // CHECK: comm.fsdp.split_with_sizes_copy %{{.*}} sizes [4, 6] members [1] : (tensor<40xbf16>) -> tensor<24xbf16>
  %q = comm.fsdp.split_with_sizes_copy %buffer sizes [4, 6] members [1] : (tensor<40xbf16>) -> tensor<24xbf16>
  // CHECK: comm.fsdp.split_with_sizes %{{.*}} sizes [4, 6] : (tensor<10xbf16>) -> (tensor<2x2xbf16>, tensor<6xbf16>)
  %v:2 = comm.fsdp.split_with_sizes %flat sizes [4, 6] : (tensor<10xbf16>) -> (tensor<2x2xbf16>, tensor<6xbf16>)
  // CHECK: comm.fsdp.chunk_cat %{{.*}}, %{{.*}} chunks 2 : (tensor<8x2xbf16>, tensor<24xbf16>) -> tensor<40xf32>
  %cat = comm.fsdp.chunk_cat %p#0, %p#1 chunks 2 : (tensor<8x2xbf16>, tensor<24xbf16>) -> tensor<40xf32>
  // CHECK: comm.resize_storage %{{.*}} to 48 : tensor<24xbf16>
  comm.resize_storage %param to 48 : tensor<24xbf16>
  // CHECK: comm.fsdp.copy %{{.*}} into %{{.*}} : tensor<24xbf16> into tensor<24xbf16>
  comm.fsdp.copy %q into %param : tensor<24xbf16> into tensor<24xbf16>
  return
}

// CHECK-LABEL: func @streams
// CHECK-SAME: {comm.donated}
func.func @streams(%a: tensor<4x8xf32> {comm.donated}, %b: tensor<8x?xf32> {comm.bytes_hint = 512 : i64}, %f: !comm.future<tensor<4xf32>> {comm.ready_ns = 100 : i64}) {
  // CHECK: comm.compute "aten.mm"(%{{.*}}, %{{.*}}) {comm.bytes_hint = array<i64: 256>, comm.cost = #comm.cost<flops = 1024, workspace = 64>} : (tensor<4x8xf32>, tensor<8x?xf32>) -> tensor<4x?xf32>
  %c = comm.compute "aten.mm"(%a, %b) {comm.cost = #comm.cost<flops = 1024, workspace = 64>, comm.bytes_hint = array<i64: 256>} : (tensor<4x8xf32>, tensor<8x?xf32>) -> tensor<4x?xf32>
  // CHECK: comm.compute "aten.view"(%{{.*}}) aliases [0] : (tensor<4x8xf32>) -> tensor<32xf32>
  %v = comm.compute "aten.view"(%a) aliases [0] : (tensor<4x8xf32>) -> tensor<32xf32>
  // CHECK: comm.compute "aten.add_"(%{{.*}}) aliases [0] mutates [0] {comm.cost = #comm.cost<time = 1500, time_lo = 1400, time_hi = 1650>}
  %m = comm.compute "aten.add_"(%v) aliases [0] mutates [0] {comm.cost = #comm.cost<time = 1500, time_lo = 1400, time_hi = 1650>} : (tensor<32xf32>) -> tensor<32xf32>
  // CHECK: comm.compute "print"() side_effects {comm.hybrid = @dp, comm.pinned} : () -> ()
  comm.compute "print"() side_effects {comm.pinned, comm.hybrid = @dp} : () -> ()
  // CHECK: %[[E:.*]] = comm.record on 1 : !comm.event
  %e = comm.record on 1 : !comm.event
  // CHECK: comm.await_event %[[E]] on 0 : !comm.event
  comm.await_event %e on 0 : !comm.event
  return
}

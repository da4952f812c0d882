// Tests that a program with every operation of the dialect runs, and that every pass keeps its bits.

// RUN: comm-run %s --ranks 4 --print | FileCheck %s
// RUN: comm-opt %s --comm-raise --comm-sink-waits -o %t.seeds.mlir
// RUN: comm-opt %s --comm-reorder-compute-for-overlap --comm-order-fsdp -o %t.overlap.mlir
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory --comm-sink-waits-preserving-peak-memory -o %t.peak.mlir
// RUN: comm-opt %s --comm-order-collectives --comm-schedule -o %t.schedule.mlir
// RUN: comm-opt %s --comm-bucket --comm-reinplace-all-gather --comm-remove-unsharded-param-usage -o %t.packed.mlir
// RUN: comm-opt %s --comm-bucket=form=coalesced --comm-realize-buffers -o %t.coalesced.mlir
// RUN: comm-opt %s --reorder-comm-overlap -o %t.pipeline.mlir
// RUN: comm-run %s --ranks 4 --compare %t.seeds.mlir --compare %t.overlap.mlir --compare %t.peak.mlir \
// RUN:     --compare %t.schedule.mlir --compare %t.packed.mlir --compare %t.coalesced.mlir --compare %t.pipeline.mlir \
// RUN:   | FileCheck %s --check-prefix=EQUAL
// EQUAL: equal, bit for bit, on 4 ranks

comm.group @world #comm.iota<[1, 4]>
comm.group @pairs #comm.iota<[2, 2]>

// CHECK: rank 0 result 0: [4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4]
// CHECK-NEXT: rank 0 result 1: [2, 2, 2, 2]
// CHECK-NEXT: rank 0 result 2: [1, 1, 1, 1]
// CHECK-NEXT: rank 0 result 3: [1, 1, 1, 1]
// CHECK-NEXT: rank 0 result 4: [4, 4, 4, 4]
// CHECK-NEXT: rank 0 result 5: [1, 1, 1, 1, 1, 1, 1, 1]
// CHECK-NEXT: rank 0 result 6: [1]
// CHECK-NEXT: rank 0 result 7: [0, 0, 0, 0]
// CHECK-NEXT: rank 0 result 8: [1, 1, 1, 1]
// CHECK-NEXT: rank 0 result 9: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
// CHECK-NEXT: rank 0 result 10: [4]
// CHECK-NEXT: rank 0 result 11: [4, 4, 4, 4]
// CHECK-NEXT: rank 0 result 12: [0]
// CHECK: rank 3 result 12: [3]
func.func @main() -> (tensor<16xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8xf32>,
                      tensor<1xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x4xf32>, tensor<1xf32>, tensor<4xf32>, index) {
  %one = arith.constant dense<1.0> : tensor<4xf32>
  %zeros = arith.constant dense<0.0> : tensor<8xf32>

  // Calls, computations of another dialect, a gather and sums.
  %halves = func.call @sum(%one) : (tensor<4xf32>) -> tensor<4xf32>
  %empty = tensor.empty() : tensor<4xf32>
  %sum = linalg.max ins(%halves, %one : tensor<4xf32>, tensor<4xf32>) outs(%empty : tensor<4xf32>) -> tensor<4xf32>
  %f0 = comm.all_gather %sum on @world : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %a = comm.wait %f0 : !comm.future<tensor<16xf32>>
  %f1 = comm.all_reduce scaled_sum scale 5.000000e-01 %one on @world : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %b = comm.wait %f1 : !comm.future<tensor<4xf32>>

  %f1o = comm.all_reduce sum %one on @world one_shot : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %bo = comm.wait %f1o : !comm.future<tensor<4xf32>>

  // Everyone to everyone, even and by splits.
  %f2 = comm.all_to_all %one on @world : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %c = comm.wait %f2 : !comm.future<tensor<4xf32>>
  %f3 = comm.all_to_all %c on @pairs input_splits [2, 2] output_splits [2, 2]
      : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %d = comm.wait %f3 : !comm.future<tensor<4xf32>>

  // One to all and all to one. What the others get is what the destination held.
  %f4 = comm.broadcast %sum on @world root 2 : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %e = comm.wait %f4 : !comm.future<tensor<4xf32>>
  %held = comm.compute "copy"(%zeros) : (tensor<8xf32>) -> tensor<8xf32>
  %f5 = comm.gather %one into %held on @pairs root 0 : (tensor<4xf32>) -> !comm.future<tensor<8xf32>>
  %f = comm.wait %f5 : !comm.future<tensor<8xf32>>
  %f6 = comm.scatter %one on @world root 1 : (tensor<4xf32>) -> !comm.future<tensor<1xf32>>
  %g = comm.wait %f6 : !comm.future<tensor<1xf32>>
  %own = comm.compute "copy"(%one) : (tensor<4xf32>) -> tensor<4xf32>
  %f7 = comm.reduce max %one into %own on @world root 3 : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %unused = comm.wait %f7 : !comm.future<tensor<4xf32>>

  // A ring that does not close, and messages within pairs.
  %f8 = comm.permute %one on @world pairs [0, 1, 1, 2, 2, 3] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %h = comm.wait %f8 : !comm.future<tensor<4xf32>>
  %s0 = comm.send %one on @pairs peer 0 : (tensor<4xf32>) -> !comm.future<>
  %s1 = comm.send %one on @pairs peer 1 : (tensor<4xf32>) -> !comm.future<>
  %r0 = comm.recv on @pairs peer 0 : () -> !comm.future<tensor<4xf32>>
  %r1 = comm.recv on @pairs peer 1 : () -> !comm.future<tensor<4xf32>>
  comm.wait %s0 : !comm.future<>
  comm.wait %s1 : !comm.future<>
  %i = comm.wait %r0 : !comm.future<tensor<4xf32>>
  %ignored = comm.wait %r1 : !comm.future<tensor<4xf32>>
  %fb = comm.barrier on @world : () -> !comm.future<>
  comm.wait %fb : !comm.future<>
  %event = comm.record on 0 : !comm.event
  comm.await_event %event on 1 : !comm.event

  // Fully sharded data parallel.
  %slice, %buffer = comm.fsdp.all_gather_copy_in %one on @world : (tensor<4xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  %f9 = comm.all_gather %slice into %buffer on @world : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %full = comm.wait %f9 : !comm.future<tensor<16xf32>>
  %j = comm.fsdp.split_with_sizes_copy %full sizes [4] : (tensor<16xf32>) -> tensor<4x4xf32>
  %cat = comm.fsdp.chunk_cat %i, %c chunks 4 : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
  %f10 = comm.reduce_scatter sum %cat on @world : (tensor<8xf32>) -> !comm.future<tensor<2xf32>>
  %shard = comm.wait %f10 : !comm.future<tensor<2xf32>>
  %k, %l = comm.fsdp.split_with_sizes %shard sizes [1, 1] : (tensor<2xf32>) -> (tensor<1xf32>, tensor<1xf32>)
  %rank = comm.rank : index
  return %a, %b, %c, %d, %e, %f, %g, %h, %i, %j, %k, %bo, %rank
      : tensor<16xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8xf32>, tensor<1xf32>,
        tensor<4xf32>, tensor<4xf32>, tensor<4x4xf32>, tensor<1xf32>, tensor<4xf32>, index
}

func.func private @sum(%x: tensor<4xf32>) -> tensor<4xf32> {
  %f = comm.all_reduce sum %x, %x on @world
      : (tensor<4xf32>, tensor<4xf32>) -> !comm.future<tensor<4xf32>, tensor<4xf32>>
  %sums:2 = comm.wait %f : !comm.future<tensor<4xf32>, tensor<4xf32>>
  return %sums#1 : tensor<4xf32>
}

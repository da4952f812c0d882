// Tests that a rank's slice is in symmetric memory only if the collective gathers into the buffer of the slice. Where a
// future leaves its block, bufferization copies before every write, and the slice stays in another buffer: its place there
// depends on the rank.

// RUN: comm-opt %s --comm-realize-buffers --comm-bufferize -split-input-file | FileCheck %s

comm.group @world #comm.iota<[1, 2]>

// CHECK-LABEL: @copied
// CHECK: comm.fsdp.all_gather_copy_in %{{.*}} into %[[OWN:.*]] : memref<8xf32> on @world
// CHECK: %[[OTHER:.*]] = memref.alloc() {{.*}} : memref<8xf32, #comm.symmetric<@world>>
// CHECK: comm.all_gather %{{.*}} into %[[OTHER]] on @world
func.func @copied(%x: tensor<4xf32>) -> (tensor<8xf32>, tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %first = comm.all_reduce sum %x on @world : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %last = scf.for %i = %c0 to %c2 step %c1 iter_args(%f = %first) -> (!comm.future<tensor<4xf32>>) {
    %y = comm.wait %f : !comm.future<tensor<4xf32>>
    %next = comm.all_reduce sum %y on @world : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
    scf.yield %next : !comm.future<tensor<4xf32>>
  }
  %sum = comm.wait %last : !comm.future<tensor<4xf32>>
  %slice, %buffer = comm.fsdp.all_gather_copy_in %x on @world : (tensor<4xf32>) -> (tensor<4xf32>, tensor<8xf32>)
  %f = comm.all_gather %slice into %buffer on @world : (tensor<4xf32>) -> !comm.future<tensor<8xf32>>
  %full = comm.wait %f : !comm.future<tensor<8xf32>>
  %copy = comm.compute "copy"(%full) : (tensor<8xf32>) -> tensor<8xf32>
  return %copy, %sum : tensor<8xf32>, tensor<4xf32>
}

// -----

comm.group @world #comm.iota<[1, 2]>

// CHECK-LABEL: @inPlace
// CHECK: comm.fsdp.all_gather_copy_in %{{.*}} into %[[BUFFER:.*]] : memref<8xf32, #comm.symmetric<@world>> on @world
// CHECK: comm.all_gather %{{.*}} into %[[BUFFER]] on @world
func.func @inPlace(%x: tensor<4xf32>) -> tensor<8xf32> {
  %slice, %buffer = comm.fsdp.all_gather_copy_in %x on @world : (tensor<4xf32>) -> (tensor<4xf32>, tensor<8xf32>)
  %f = comm.all_gather %slice into %buffer on @world : (tensor<4xf32>) -> !comm.future<tensor<8xf32>>
  %full = comm.wait %f : !comm.future<tensor<8xf32>>
  %copy = comm.compute "copy"(%full) : (tensor<8xf32>) -> tensor<8xf32>
  return %copy : tensor<8xf32>
}

// RUN: comm-opt %s --symbol-dce | FileCheck %s

// Tests that symbol DCE keeps a private group that anything names, in an attribute or in a type, and deletes one that
// nothing does.

// CHECK: comm.group private @by_start
comm.group private @by_start #comm.iota<[1, 4]>
// CHECK: comm.group private @by_hybrid
comm.group private @by_hybrid #comm.iota<[1, 4]>
// CHECK: comm.group private @by_signature
comm.group private @by_signature #comm.iota<[1, 4]>
// CHECK: comm.group private @by_value
comm.group private @by_value #comm.iota<[1, 4]>
// CHECK: comm.group private @by_block_argument
comm.group private @by_block_argument #comm.iota<[1, 4]>
// CHECK: comm.group private @by_future
comm.group private @by_future #comm.iota<[1, 4]>
// CHECK: comm.group @by_nothing_public
comm.group @by_nothing_public #comm.iota<[1, 4]>
// CHECK-NOT: @by_nothing
comm.group private @by_nothing #comm.iota<[1, 4]>

// CHECK: func @uses
func.func @uses(%x: tensor<4xf32>, %m: memref<4xf32, #comm.symmetric<@by_signature>>, %p: i1) {
  %f = comm.all_gather %x on @by_start : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w = comm.wait %f : !comm.future<tensor<16xf32>>
  comm.compute "mm"() {comm.hybrid = @by_hybrid} : () -> ()
  %a = memref.alloc() : memref<4xf32, #comm.symmetric<@by_value>>
  %c = comm.compute "future"() : () -> !comm.future<memref<4xf32, #comm.symmetric<@by_future>>>
  return
}

func.func @blocks() {
  return
^unreachable(%1: memref<4xf32, #comm.symmetric<@by_block_argument>>):
  return
}

// RUN: comm-opt %s --comm-bufferize --split-input-file | FileCheck %s

// Tests that parts of a tensor are computed in their places in its buffer, which is allocated before the first of them.
// CHECK-LABEL: func @computations
func.func @computations(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // CHECK: %[[WHOLE:.*]] = memref.alloc() {{.*}} : memref<4x8xf32>
  // CHECK: %[[LEFT:.*]] = memref.subview %[[WHOLE]][0, 0] [4, 4] [1, 1]
  // CHECK: comm.compute "relu"(%{{.*}}, %[[LEFT]]) mutates [1]
  // CHECK: %[[RIGHT:.*]] = memref.subview %[[WHOLE]][0, 4] [4, 4] [1, 1]
  // CHECK: comm.compute "relu"(%{{.*}}, %[[RIGHT]]) mutates [1]
  // CHECK-NOT: memref.copy
  // CHECK: comm.compute "neg"(%[[WHOLE]],
  %a = tensor.extract_slice %x[0, 0] [4, 4] [1, 1] : tensor<4x8xf32> to tensor<4x4xf32>
  %b = tensor.extract_slice %x[0, 4] [4, 4] [1, 1] : tensor<4x8xf32> to tensor<4x4xf32>
  %p = comm.compute "relu"(%a) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %q = comm.compute "relu"(%b) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %e = tensor.empty() : tensor<4x8xf32>
  %i = tensor.insert_slice %p into %e[0, 0] [4, 4] [1, 1] {in_place} : tensor<4x4xf32> into tensor<4x8xf32>
  %j = tensor.insert_slice %q into %i[0, 4] [4, 4] [1, 1] {in_place} : tensor<4x4xf32> into tensor<4x8xf32>
  %r = comm.compute "neg"(%j) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  // A part may be read later, because the whole is only read.
  %s = comm.compute "abs"(%p) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %t = tensor.insert_slice %s into %r[0, 0] [4, 4] [1, 1] : tensor<4x4xf32> into tensor<4x8xf32>
  return %t : tensor<4x8xf32>
}

// -----

// Tests that collectives write contiguous parts directly. Those that are not contiguous are copied: a collective would
// copy them, too.
comm.group @tp #comm.iota<[1, 2]>
// CHECK-LABEL: func @collectives
func.func @collectives(%x: tensor<2x8xf32>, %y: tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  // CHECK: %[[ROWS:.*]] = memref.subview %{{.*}}[0, 0] [2, 8] [1, 1]
  // CHECK: comm.all_reduce sum %{{.*}} into %[[ROWS]] on @tp : (memref<2x8xf32>) -> !comm.future<memref<2x8xf32, strided<[8, 1]>>>
  // CHECK: %[[MORE:.*]] = memref.subview %{{.*}}[2, 0] [2, 8] [1, 1]
  // CHECK: comm.all_reduce max %{{.*}} into %[[MORE]] on @tp
  // CHECK: comm.all_reduce sum %{{.*}} into %{{.*}} on @tp : (memref<4x4xf32>) -> !comm.future<memref<4x4xf32>>
  // CHECK: comm.all_reduce max %{{.*}} into %{{.*}} on @tp : (memref<4x4xf32>) -> !comm.future<memref<4x4xf32>>
  // CHECK-COUNT-2: memref.copy
  // CHECK-NOT: memref.copy
  // CHECK: return
  %f = comm.all_reduce sum %x on @tp : (tensor<2x8xf32>) -> !comm.future<tensor<2x8xf32>>
  %g = comm.all_reduce max %x on @tp : (tensor<2x8xf32>) -> !comm.future<tensor<2x8xf32>>
  %h = comm.all_reduce sum %y on @tp : (tensor<4x4xf32>) -> !comm.future<tensor<4x4xf32>>
  %k = comm.all_reduce max %y on @tp : (tensor<4x4xf32>) -> !comm.future<tensor<4x4xf32>>
  %a = comm.wait %f : !comm.future<tensor<2x8xf32>>
  %b = comm.wait %g : !comm.future<tensor<2x8xf32>>
  %c = comm.wait %h : !comm.future<tensor<4x4xf32>>
  %d = comm.wait %k : !comm.future<tensor<4x4xf32>>
  %e = tensor.empty() : tensor<4x8xf32>
  %i = tensor.insert_slice %a into %e[0, 0] [2, 8] [1, 1] : tensor<2x8xf32> into tensor<4x8xf32>
  %j = tensor.insert_slice %b into %i[2, 0] [2, 8] [1, 1] : tensor<2x8xf32> into tensor<4x8xf32>
  %l = tensor.empty() : tensor<4x8xf32>
  %m = tensor.insert_slice %c into %l[0, 0] [4, 4] [1, 1] : tensor<4x4xf32> into tensor<4x8xf32>
  %n = tensor.insert_slice %d into %m[0, 4] [4, 4] [1, 1] : tensor<4x4xf32> into tensor<4x8xf32>
  return %j, %n : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// Tests that parts are copied that anything could tell from their places: one that is read after the whole is written, one
// that is returned, and those of a whole with other contents.
// CHECK-LABEL: func @copies
func.func @copies(%x: tensor<4x4xf32>) -> (tensor<8x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<8x4xf32>) {
  // CHECK-COUNT-2: memref.copy
  // CHECK: comm.compute "update"
  // CHECK: memref.copy
  %p = comm.compute "relu"(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %q = comm.compute "neg"(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %e = tensor.empty() : tensor<8x4xf32>
  %i = tensor.insert_slice %p into %e[0, 0] [4, 4] [1, 1] : tensor<4x4xf32> into tensor<8x4xf32>
  %j = tensor.insert_slice %q into %i[4, 0] [4, 4] [1, 1] : tensor<4x4xf32> into tensor<8x4xf32>
  comm.compute "update"(%j) mutates [0] : (tensor<8x4xf32>) -> ()
  %r = comm.compute "abs"(%p) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = comm.compute "make"() : () -> tensor<8x4xf32>
  %t = comm.compute "relu"(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %u = tensor.insert_slice %t into %s[0, 0] [4, 4] [1, 1] : tensor<4x4xf32> into tensor<8x4xf32>
  return %j, %q, %r, %u : tensor<8x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<8x4xf32>
}

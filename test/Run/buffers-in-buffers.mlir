// RUN: comm-opt %s --split-input-file --comm-sink-waits -o %t.sunk.mlir
// RUN: comm-opt %s --split-input-file --comm-schedule -o %t.scheduled.mlir
// RUN: comm-run --split-input-file %s --ranks 2 --compare %t.sunk.mlir --compare %t.scheduled.mlir
// RUN: comm-opt %s --split-input-file --comm-sink-waits | FileCheck %s
// RUN: comm-opt %s --split-input-file --comm-bufferize | FileCheck %s --check-prefix=FREE

// Tests that a read of a memref which was loaded from memory keeps its order with a write of the buffer that was stored there, and
// that the buffer lives until then.
comm.group @world #comm.iota<[1, 2]>
// CHECK-LABEL: func.func @main
// CHECK: memref.store %{{.*}} : memref<4xf32>
// CHECK: memref.store %{{.*}} : memref<4xf32>
// CHECK: memref.load %{{.*}} : memref<4xf32>
func.func @main(%x: tensor<4xf32>) -> f32 {
  %zero = arith.constant 0 : index
  %before = arith.constant 7.0 : f32
  %buffer = memref.alloc() : memref<4xf32>
  memref.store %before, %buffer[%zero] : memref<4xf32>
  %outer = memref.alloc() : memref<1xmemref<4xf32>>
  memref.store %buffer, %outer[%zero] : memref<1xmemref<4xf32>>
  %loaded = memref.load %outer[%zero] : memref<1xmemref<4xf32>>
  %f = comm.all_reduce sum %x on @world : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w = comm.wait %f : !comm.future<tensor<4xf32>>
  %sum = tensor.extract %w[%zero] : tensor<4xf32>
  memref.store %sum, %buffer[%zero] : memref<4xf32>
  %read = memref.load %loaded[%zero] : memref<4xf32>
  return %read : f32
}

// -----

// Tests that a buffer that only a buffer of buffers knows is not freed in front of its last read.
comm.group @one #comm.iota<[2, 1]>
// FREE-LABEL: func.func @last_read
// FREE-NOT: dealloc
// FREE: memref.load %{{.*}} : memref<1xmemref<4xf32>>
// FREE-NOT: dealloc %{{.*}} : memref<4xf32>
// FREE: memref.load %{{.*}} : memref<4xf32>
func.func @last_read(%x: memref<4xf32>) -> f32 {
  %zero = arith.constant 0 : index
  %value = arith.constant 7.0 : f32
  %buffer = memref.alloc() : memref<4xf32>
  memref.store %value, %buffer[%zero] : memref<4xf32>
  %outer = memref.alloc() : memref<1xmemref<4xf32>>
  memref.store %buffer, %outer[%zero] : memref<1xmemref<4xf32>>
  %loaded = memref.load %outer[%zero] : memref<1xmemref<4xf32>>
  %read = memref.load %loaded[%zero] : memref<4xf32>
  return %read : f32
}

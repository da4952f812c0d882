// RUN: comm-opt %s --comm-bufferize --comm-to-llvm | FileCheck %s
// RUN: comm-opt %s --comm-bufferize | FileCheck %s --check-prefix=BUFFERS

comm.group @dp #comm.iota<[1, 4]>

// Tests that the current stream changes only between operations of different streams, that a wait makes its own stream
// wait, and that a block begins and ends with stream 0. Streams are fetched once, in the order of their first use.
// CHECK-LABEL: func.func @streams
// CHECK: %[[TWO:.*]] = llvm.mlir.constant(2 : i32)
// CHECK: llvm.call @commrt_stream_get(%{{.*}}, %{{.*}}, %[[TWO]], %[[SLOT:[0-9]+]])
// CHECK: %[[S2:.*]] = llvm.load %[[SLOT]]
// CHECK: %[[ONE:.*]] = llvm.mlir.constant(1 : i32)
// CHECK: llvm.call @commrt_stream_get(%{{.*}}, %{{.*}}, %[[ONE]], %[[SLOT]])
// CHECK: %[[S1:.*]] = llvm.load %[[SLOT]]
// CHECK: llvm.call @commrt_stream_get
// CHECK: %[[S0:.*]] = llvm.load %[[SLOT]]
// CHECK: llvm.call @commrt_event_record(%[[CTX:[0-9]+]], %[[S0]], %[[SLOT]])
// CHECK: %[[E:.*]] = llvm.load %[[SLOT]]
// CHECK: llvm.call @commrt_event_await(%[[CTX]], %[[S2]], %[[E]])
// CHECK: llvm.call @commrt_set_stream(%[[CTX]], %[[S2]])
// CHECK-NOT: commrt_set_stream
// CHECK: llvm.call @commrt_compute
// CHECK: llvm.call @commrt_compute
// CHECK: llvm.call @commrt_event_await(%[[CTX]], %[[S1]], %{{.*}})
// CHECK: llvm.call @commrt_set_stream(%[[CTX]], %[[S1]])
// CHECK-NOT: commrt_set_stream
// CHECK: llvm.call @commrt_all_reduce_start
// CHECK: llvm.call @commrt_set_stream(%[[CTX]], %[[S2]])
// CHECK: llvm.call @commrt_wait(%{{.*}}, %[[S2]])
// CHECK: llvm.call @commrt_compute
// CHECK: llvm.call @commrt_event_await(%[[CTX]], %[[S0]], %{{.*}})
// CHECK: llvm.call @commrt_set_stream(%[[CTX]], %[[S0]])
// CHECK: return
func.func @streams(%x: tensor<4xf32>) -> tensor<4xf32> {
  %entry = comm.record on 0 : !comm.event
  comm.await_event %entry on 2 : !comm.event
  %a = comm.compute "neg"(%x) {comm.stream = 2 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %b = comm.compute "abs"(%a) {comm.stream = 2 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %e = comm.record on 2 : !comm.event
  comm.await_event %e on 1 : !comm.event
  %f = comm.all_reduce max %b on @dp {comm.stream = 1 : i64} : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w = comm.wait %f {comm.stream = 2 : i64} : !comm.future<tensor<4xf32>>
  %c = comm.compute "neg"(%w) {comm.stream = 2 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %d = comm.record on 2 : !comm.event
  comm.await_event %d on 0 : !comm.event
  return %c : tensor<4xf32>
}

// Tests that a copy that bufferization makes, on stream 0, gets events of its own.
// BUFFERS-LABEL: func.func @copied
// BUFFERS: comm.compute "neg"
// BUFFERS-NEXT: %[[A:.*]] = comm.record on 2
// BUFFERS: comm.await_event %[[A]] on 0
// BUFFERS-NEXT: memref.copy
// BUFFERS-NEXT: %[[C:.*]] = comm.record on 0
// BUFFERS: comm.await_event %[[C]] on 2
// BUFFERS-NEXT: linalg.matmul {comm.stream = 2 : i64}
func.func @copied(%x: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>) {
  %entry = comm.record on 0 : !comm.event
  comm.await_event %entry on 2 : !comm.event
  %a = comm.compute "neg"(%x) {comm.stream = 2 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %b = linalg.matmul {comm.stream = 2 : i64} ins(%x, %x : tensor<2x2xf32>, tensor<2x2xf32>) outs(%a : tensor<2x2xf32>) -> tensor<2x2xf32>
  %d = comm.record on 2 : !comm.event
  comm.await_event %d on 0 : !comm.event
  return %a, %b : tensor<2x2xf32>, tensor<2x2xf32>
}

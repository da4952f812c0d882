// RUN: comm-opt %s --comm-decompose-all-to-all --remarks-filter=comm-decompose-all-to-all --verify-diagnostics --split-input-file | FileCheck %s

// Tests an exchange that moves the shard from dimension 1 to dimension 2.
comm.group @ep #comm.iota<[1, 4]>
// CHECK-LABEL: func @moves_the_shard
// CHECK-SAME: %[[X:.*]]: tensor<2x8x3xf32>
func.func @moves_the_shard(%x: tensor<2x8x3xf32>) -> tensor<2x2x12xf32> {
  // CHECK: %[[P:.*]] = tensor.expand_shape %[[X]] {{\[\[}}0], [1, 2], [3]] output_shape [2, 4, 2, 3]
  // CHECK: %[[T:.*]] = linalg.transpose ins(%[[P]] : tensor<2x4x2x3xf32>) outs({{.*}} : tensor<4x2x2x3xf32>) permutation = [1, 0, 2, 3]
  // CHECK: %[[F:.*]] = comm.all_to_all %[[T]] on @ep : (tensor<4x2x2x3xf32>) -> !comm.future<tensor<4x2x2x3xf32>>
  // expected-remark @+1 {{Bytes=192, Kind=all_to_all, LimitingFactor=none, Remark="exchanged along the leading dimension"}}
  %f = comm.all_to_all %x on @ep split 1 concat 2 : (tensor<2x8x3xf32>) -> !comm.future<tensor<2x2x12xf32>>
  // CHECK: %[[W:.*]] = comm.wait %[[F]]
  // CHECK: %[[B:.*]] = linalg.transpose ins(%[[W]] : tensor<4x2x2x3xf32>) outs({{.*}} : tensor<2x2x4x3xf32>) permutation = [1, 2, 0, 3]
  // CHECK: tensor.collapse_shape %[[B]] {{\[\[}}0], [1], [2, 3]] : tensor<2x2x4x3xf32> into tensor<2x2x12xf32>
  %w = comm.wait %f : !comm.future<tensor<2x2x12xf32>>
  return %w : tensor<2x2x12xf32>
}

// Tests that nothing is transposed on the side that leads already, and uneven pieces.
// CHECK-LABEL: func @leading
func.func @leading(%x: tensor<8x3xf32>, %y: tensor<3x4xf32>) -> (tensor<2x12xf32>, tensor<3x5xf32>) {
  // CHECK: tensor.expand_shape
  // CHECK-NEXT: comm.all_to_all %{{.*}} on @ep : (tensor<4x2x3xf32>)
  // expected-remark @+1 {{exchanged along the leading dimension}}
  %f = comm.all_to_all %x on @ep split 0 concat 1 : (tensor<8x3xf32>) -> !comm.future<tensor<2x12xf32>>
  %w = comm.wait %f : !comm.future<tensor<2x12xf32>>
  // CHECK: linalg.transpose ins({{.*}} : tensor<3x4xf32>) outs({{.*}} : tensor<4x3xf32>)
  // CHECK: comm.all_to_all %{{.*}} on @ep input_splits [1, 1, 1, 1] output_splits [2, 1, 1, 1] : (tensor<4x3xf32>) -> !comm.future<tensor<5x3xf32>>
  // expected-remark @+1 {{exchanged along the leading dimension}}
  %g = comm.all_to_all %y on @ep split 1 concat 1 input_splits [1, 1, 1, 1] output_splits [2, 1, 1, 1] : (tensor<3x4xf32>) -> !comm.future<tensor<3x5xf32>>
  // CHECK: linalg.transpose ins({{.*}} : tensor<5x3xf32>) outs({{.*}} : tensor<3x5xf32>)
  %v = comm.wait %g : !comm.future<tensor<3x5xf32>>
  return %w, %v : tensor<2x12xf32>, tensor<3x5xf32>
}

// -----

// Tests what is left alone; an exchange along the leading dimension is none of the pass's business.
comm.group @ep #comm.iota<[1, 4]>
// CHECK-LABEL: func @refused
// CHECK-NOT: transpose
func.func @refused(%x: tensor<8x4xf32>, %y: tensor<?x4xf32>, %m: memref<8x4xf32>, %n: memref<32x1xf32>) -> !comm.future<tensor<32x1xf32>> {
  %f0 = comm.all_to_all %x on @ep : (tensor<8x4xf32>) -> !comm.future<tensor<8x4xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<8x4xf32>>
  // expected-remark @+1 {{LimitingFactor="the exchange is on buffers"}}
  %f1 = comm.all_to_all %m into %n on @ep split 1 : (memref<8x4xf32>) -> !comm.future<memref<32x1xf32>>
  %w1 = comm.wait %f1 keeping (%m, %n : memref<8x4xf32>, memref<32x1xf32>) : !comm.future<memref<32x1xf32>>
  // expected-remark @+1 {{LimitingFactor="an input has a dynamic size"}}
  %f2 = comm.all_to_all %y on @ep split 1 : (tensor<?x4xf32>) -> !comm.future<tensor<?x1xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<?x1xf32>>
  %e = tensor.empty() : tensor<32x1xf32>
  // expected-remark @+1 {{LimitingFactor="the exchange has destinations"}}
  %f3 = comm.all_to_all %x into %e on @ep split 1 : (tensor<8x4xf32>) -> !comm.future<tensor<32x1xf32>>
  %w3 = comm.wait %f3 : !comm.future<tensor<32x1xf32>>
  // expected-remark @+1 {{LimitingFactor="a result has a dynamic size"}}
  %f4 = comm.all_to_all %x on @ep split 1 : (tensor<8x4xf32>) -> !comm.future<tensor<?x1xf32>>
  %w4 = comm.wait %f4 : !comm.future<tensor<?x1xf32>>
  // expected-remark @+1 {{LimitingFactor="the future leaves its block"}}
  %f5 = comm.all_to_all %x on @ep split 1 : (tensor<8x4xf32>) -> !comm.future<tensor<32x1xf32>>
  return %f5 : !comm.future<tensor<32x1xf32>>
}

// -----

// Tests that an exchange keeps its form behind comm-multi-stream: the transpositions would need streams and events, too.
comm.group @ep #comm.iota<[1, 4]>
// CHECK-LABEL: func @streamed
// CHECK: comm.all_to_all {{.*}} split 1 {{.*}}comm.stream = 1
func.func @streamed(%x: tensor<8x4xf32>) -> tensor<32x1xf32> {
  // expected-remark @+1 {{LimitingFactor="operations of the block are on several streams; choose streams last"}}
  %f = comm.all_to_all %x on @ep split 1 {comm.stream = 1 : i64} : (tensor<8x4xf32>) -> !comm.future<tensor<32x1xf32>>
  %w = comm.wait %f : !comm.future<tensor<32x1xf32>>
  return %w : tensor<32x1xf32>
}

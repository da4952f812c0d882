// Tests that operations of StableHLO cost as much as the same ones of upstream's dialects, and that nothing else has unknown effects
// or a guessed cost.

// RUN: comm-opt %s --reorder-comm-overlap=table=true -o /dev/null 2>&1 | FileCheck %s --implicit-check-not=guess --implicit-check-not=unknown
comm.group @dp #comm.iota<[1, 8]>

// CHECK: convolution_upstream:
// CHECK: load compute [[CONVOLUTION:[0-9.]+ [mu]?s]]
// CHECK: convolution_stablehlo:
// CHECK: load compute [[CONVOLUTION]]
func.func @convolution_upstream(%x: tensor<16x66x66x64xbf16>, %k: tensor<3x3x64x128xbf16>, %w: tensor<64xbf16>) -> (tensor<16x64x64x128xbf16>, tensor<64xbf16>) {
  %e = tensor.empty() : tensor<16x64x64x128xbf16>
  %y = linalg.conv_2d_nhwc_hwcf ins(%x, %k : tensor<16x66x66x64xbf16>, tensor<3x3x64x128xbf16>) outs(%e : tensor<16x64x64x128xbf16>) -> tensor<16x64x64x128xbf16>
  %f = comm.all_reduce sum %w on @dp : (tensor<64xbf16>) -> !comm.future<tensor<64xbf16>>
  %s = comm.wait %f : !comm.future<tensor<64xbf16>>
  return %y, %s : tensor<16x64x64x128xbf16>, tensor<64xbf16>
}
func.func @convolution_stablehlo(%x: tensor<16x66x66x64xbf16>, %k: tensor<3x3x64x128xbf16>, %w: tensor<64xbf16>) -> (tensor<16x64x64x128xbf16>, tensor<64xbf16>) {
  %y = "stablehlo.convolution"(%x, %k) <{batch_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, feature_group_count = 1 : i64}> : (tensor<16x66x66x64xbf16>, tensor<3x3x64x128xbf16>) -> tensor<16x64x64x128xbf16>
  %f = comm.all_reduce sum %w on @dp : (tensor<64xbf16>) -> !comm.future<tensor<64xbf16>>
  %s = comm.wait %f : !comm.future<tensor<64xbf16>>
  return %y, %s : tensor<16x64x64x128xbf16>, tensor<64xbf16>
}

// CHECK: elementwise_upstream:
// CHECK: load compute [[ELEMENTWISE:[0-9.]+ [mu]?s]]
// CHECK: elementwise_stablehlo:
// CHECK: load compute [[ELEMENTWISE]]
func.func @elementwise_upstream(%x: tensor<4096x8192xf32>, %w: tensor<64xbf16>) -> (tensor<4096x8192xf32>, tensor<64xbf16>) {
  %t = math.tanh %x : tensor<4096x8192xf32>
  %y = arith.addf %t, %x : tensor<4096x8192xf32>
  %f = comm.all_reduce sum %w on @dp : (tensor<64xbf16>) -> !comm.future<tensor<64xbf16>>
  %s = comm.wait %f : !comm.future<tensor<64xbf16>>
  return %y, %s : tensor<4096x8192xf32>, tensor<64xbf16>
}
func.func @elementwise_stablehlo(%x: tensor<4096x8192xf32>, %w: tensor<64xbf16>) -> (tensor<4096x8192xf32>, tensor<64xbf16>) {
  %t = "stablehlo.tanh"(%x) : (tensor<4096x8192xf32>) -> tensor<4096x8192xf32>
  %y = "stablehlo.add"(%t, %x) : (tensor<4096x8192xf32>, tensor<4096x8192xf32>) -> tensor<4096x8192xf32>
  %f = comm.all_reduce sum %w on @dp : (tensor<64xbf16>) -> !comm.future<tensor<64xbf16>>
  %s = comm.wait %f : !comm.future<tensor<64xbf16>>
  return %y, %s : tensor<4096x8192xf32>, tensor<64xbf16>
}

// Tests that a reduction reads its input, that a slice reads what it takes, and that a reshape is free.
// CHECK: moves_upstream:
// CHECK: load compute [[MOVES:[0-9.]+ [mu]?s]]
// CHECK: moves_stablehlo:
// CHECK: load compute [[MOVES]]
func.func @moves_upstream(%x: tensor<4096x8192xf32>, %w: tensor<64xbf16>) -> (tensor<4096xf32>, tensor<8192x4096xf32>, tensor<64xbf16>) {
  %e = tensor.empty() : tensor<4096xf32>
  %r = linalg.reduce {arith.addf} ins(%x : tensor<4096x8192xf32>) outs(%e : tensor<4096xf32>) dimensions = [1]
  %v = tensor.collapse_shape %x [[0, 1]] : tensor<4096x8192xf32> into tensor<33554432xf32>
  %u = tensor.expand_shape %v [[0, 1]] output_shape [4096, 8192] : tensor<33554432xf32> into tensor<4096x8192xf32>
  %n = tensor.empty() : tensor<8192x4096xf32>
  %t = linalg.transpose ins(%u : tensor<4096x8192xf32>) outs(%n : tensor<8192x4096xf32>) permutation = [1, 0]
  %f = comm.all_reduce sum %w on @dp : (tensor<64xbf16>) -> !comm.future<tensor<64xbf16>>
  %s = comm.wait %f : !comm.future<tensor<64xbf16>>
  return %r, %t, %s : tensor<4096xf32>, tensor<8192x4096xf32>, tensor<64xbf16>
}
func.func @moves_stablehlo(%x: tensor<4096x8192xf32>, %w: tensor<64xbf16>) -> (tensor<4096xf32>, tensor<8192x4096xf32>, tensor<64xbf16>) {
  %z = "stablehlo.constant"() <{value = dense<0.0> : tensor<f32>}> : () -> tensor<f32>
  %r = "stablehlo.reduce"(%x, %z) <{dimensions = array<i64: 1>}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %a = "stablehlo.add"(%p, %q) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%a) : (tensor<f32>) -> ()
  }) : (tensor<4096x8192xf32>, tensor<f32>) -> tensor<4096xf32>
  %v = "stablehlo.reshape"(%x) : (tensor<4096x8192xf32>) -> tensor<33554432xf32>
  %u = "stablehlo.reshape"(%v) : (tensor<33554432xf32>) -> tensor<4096x8192xf32>
  %t = "stablehlo.transpose"(%u) <{permutation = array<i64: 1, 0>}> : (tensor<4096x8192xf32>) -> tensor<8192x4096xf32>
  %f = comm.all_reduce sum %w on @dp : (tensor<64xbf16>) -> !comm.future<tensor<64xbf16>>
  %s = comm.wait %f : !comm.future<tensor<64xbf16>>
  return %r, %t, %s : tensor<4096xf32>, tensor<8192x4096xf32>, tensor<64xbf16>
}

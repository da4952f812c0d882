// RUN: comm-opt %s --convert-stablehlo-to-comm --comm-move-casts | FileCheck %s

// Tests that a conversion of StableHLO crosses a gather like any other cast.
// CHECK-LABEL: func @step
// CHECK: %[[N:.*]] = "stablehlo.convert"(%arg0) : (tensor<512x1024xf32>) -> tensor<512x1024xbf16>
// CHECK: comm.all_gather %[[N]]
module attributes {mhlo.num_replicas = 8 : i32} {
  func.func @step(%x: tensor<512x1024xf32>) -> tensor<4096x1024xbf16> {
    %g = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<512x1024xf32>) -> tensor<4096x1024xf32>
    %n = "stablehlo.convert"(%g) : (tensor<4096x1024xf32>) -> tensor<4096x1024xbf16>
    return %n : tensor<4096x1024xbf16>
  }
}

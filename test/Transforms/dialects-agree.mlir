// Tests that one program has the same times in the dialects that can say it: comm with linalg, shard with linalg, StableHLO,
// comm with TOSA, and operations that no dialect here knows, with attributes that say their costs and that they have no effects.

// RUN: comm-opt %s --allow-unregistered-dialect --convert-shard-to-comm --convert-stablehlo-to-comm \
// RUN:   --reorder-comm-overlap=table=true -o /dev/null 2>&1 | FileCheck %s

// CHECK: comm: {{.*}} 2 collectives
// CHECK: makespan [[BEFORE:.*[0-9] [mu]?s]] [[AFTER:.*[0-9] [mu]?s]] -{{[0-9.]+}} %
// CHECK: peak [[PEAK:.*iB]] {{.*iB}} limit
// CHECK: shard: {{.*}} 2 collectives
// CHECK: makespan [[BEFORE]] [[AFTER]] -
// CHECK: peak [[PEAK]] {{.*iB}} limit
// CHECK: stablehlo: {{.*}} 2 collectives
// CHECK: makespan [[BEFORE]] [[AFTER]] -
// CHECK: peak [[PEAK]] {{.*iB}} limit
// CHECK: tosa: {{.*}} 2 collectives
// CHECK: makespan [[BEFORE]] [[AFTER]] -
// CHECK: peak [[PEAK]] {{.*iB}} limit
// CHECK: unknown: {{.*}} 2 collectives
// CHECK: makespan [[BEFORE]] [[AFTER]] -
// CHECK: peak [[PEAK]] {{.*iB}} limit
module attributes {mhlo.num_partitions = 8 : i32, comm.no_effects = ["my"]} {
  comm.group @dp #comm.iota<[1, 8]>
  shard.grid @grid(shape = 8)

  func.func @comm(%x: tensor<4096x4096xbf16>, %w1: tensor<512x4096xbf16>, %w2: tensor<512x4096xbf16>) -> tensor<4096x4096xbf16> {
    %e1 = tensor.empty() : tensor<4096x4096xbf16>
    %f1 = comm.all_gather %w1 on @dp : (tensor<512x4096xbf16>) -> !comm.future<tensor<4096x4096xbf16>>
    %g1 = comm.wait %f1 : !comm.future<tensor<4096x4096xbf16>>
    %h = linalg.matmul ins(%x, %g1 : tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) outs(%e1 : tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
    %e2 = tensor.empty() : tensor<4096x4096xbf16>
    %f2 = comm.all_gather %w2 on @dp : (tensor<512x4096xbf16>) -> !comm.future<tensor<4096x4096xbf16>>
    %g2 = comm.wait %f2 : !comm.future<tensor<4096x4096xbf16>>
    %y = linalg.matmul ins(%h, %g2 : tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) outs(%e2 : tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
    return %y : tensor<4096x4096xbf16>
  }

  func.func @shard(%x: tensor<4096x4096xbf16>, %w1: tensor<512x4096xbf16>, %w2: tensor<512x4096xbf16>) -> tensor<4096x4096xbf16> {
    %e1 = tensor.empty() : tensor<4096x4096xbf16>
    %g1 = shard.all_gather %w1 on @grid grid_axes = [0] gather_axis = 0 : tensor<512x4096xbf16> -> tensor<4096x4096xbf16>
    %h = linalg.matmul ins(%x, %g1 : tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) outs(%e1 : tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
    %e2 = tensor.empty() : tensor<4096x4096xbf16>
    %g2 = shard.all_gather %w2 on @grid grid_axes = [0] gather_axis = 0 : tensor<512x4096xbf16> -> tensor<4096x4096xbf16>
    %y = linalg.matmul ins(%h, %g2 : tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) outs(%e2 : tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
    return %y : tensor<4096x4096xbf16>
  }

  func.func @stablehlo(%x: tensor<4096x4096xbf16>, %w1: tensor<512x4096xbf16>, %w2: tensor<512x4096xbf16>) -> tensor<4096x4096xbf16> {
    %g1 = "stablehlo.all_gather"(%w1) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<512x4096xbf16>) -> tensor<4096x4096xbf16>
    %h = "stablehlo.dot_general"(%x, %g1) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
    %g2 = "stablehlo.all_gather"(%w2) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, use_global_device_ids}> : (tensor<512x4096xbf16>) -> tensor<4096x4096xbf16>
    %y = "stablehlo.dot_general"(%h, %g2) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
    return %y : tensor<4096x4096xbf16>
  }

  // Products of TOSA have batches. Reshapes are views.
  func.func @tosa(%x: tensor<4096x4096xbf16>, %w1: tensor<512x4096xbf16>, %w2: tensor<512x4096xbf16>) -> tensor<4096x4096xbf16> {
    %z = "tosa.const"() {values = dense<0.0> : tensor<1xbf16>} : () -> tensor<1xbf16>
    %batch = tosa.const_shape {values = dense<[1, 4096, 4096]> : tensor<3xindex>} : () -> !tosa.shape<3>
    %matrix = tosa.const_shape {values = dense<[4096, 4096]> : tensor<2xindex>} : () -> !tosa.shape<2>
    %f1 = comm.all_gather %w1 on @dp : (tensor<512x4096xbf16>) -> !comm.future<tensor<4096x4096xbf16>>
    %g1 = comm.wait %f1 : !comm.future<tensor<4096x4096xbf16>>
    %x3 = tosa.reshape %x, %batch : (tensor<4096x4096xbf16>, !tosa.shape<3>) -> tensor<1x4096x4096xbf16>
    %m1 = tosa.reshape %g1, %batch : (tensor<4096x4096xbf16>, !tosa.shape<3>) -> tensor<1x4096x4096xbf16>
    %h = tosa.matmul %x3, %m1, %z, %z : (tensor<1x4096x4096xbf16>, tensor<1x4096x4096xbf16>, tensor<1xbf16>, tensor<1xbf16>) -> tensor<1x4096x4096xbf16>
    %f2 = comm.all_gather %w2 on @dp : (tensor<512x4096xbf16>) -> !comm.future<tensor<4096x4096xbf16>>
    %g2 = comm.wait %f2 : !comm.future<tensor<4096x4096xbf16>>
    %m2 = tosa.reshape %g2, %batch : (tensor<4096x4096xbf16>, !tosa.shape<3>) -> tensor<1x4096x4096xbf16>
    %y3 = tosa.matmul %h, %m2, %z, %z : (tensor<1x4096x4096xbf16>, tensor<1x4096x4096xbf16>, tensor<1xbf16>, tensor<1xbf16>) -> tensor<1x4096x4096xbf16>
    %y = tosa.reshape %y3, %matrix : (tensor<1x4096x4096xbf16>, !tosa.shape<2>) -> tensor<4096x4096xbf16>
    return %y : tensor<4096x4096xbf16>
  }

  // 2 x 4096^3 operations, and three matrices of 32 MiB.
  func.func @unknown(%x: tensor<4096x4096xbf16>, %w1: tensor<512x4096xbf16>, %w2: tensor<512x4096xbf16>) -> tensor<4096x4096xbf16> {
    %f1 = comm.all_gather %w1 on @dp : (tensor<512x4096xbf16>) -> !comm.future<tensor<4096x4096xbf16>>
    %g1 = comm.wait %f1 : !comm.future<tensor<4096x4096xbf16>>
    %h = "my.product"(%x, %g1) {comm.cost = #comm.cost<flops = 137438953472, bytes = 100663296>} : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
    %f2 = comm.all_gather %w2 on @dp : (tensor<512x4096xbf16>) -> !comm.future<tensor<4096x4096xbf16>>
    %g2 = comm.wait %f2 : !comm.future<tensor<4096x4096xbf16>>
    %y = "my.product"(%h, %g2) {comm.cost = #comm.cost<flops = 137438953472, bytes = 100663296>} : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
    return %y : tensor<4096x4096xbf16>
  }
}

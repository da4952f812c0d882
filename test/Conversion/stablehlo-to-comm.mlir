// Tests the form that convert-stablehlo-to-comm gives programs. What they communicate is compared with XLA by
// test/python/test_stablehlo.py.

// RUN: comm-opt %s --convert-stablehlo-to-comm --split-input-file | FileCheck %s

// Tests that a manual computation becomes the body of its function, with the tensors of one process and groups along the mesh.
// CHECK-NOT: sdy
// CHECK: comm.group @dp #comm.iota<[2, 4] from [4, 2] transpose [1, 0]>
// CHECK-LABEL: func public @main
// CHECK-SAME: (%[[X:.*]]: tensor<8x64xf32>, %[[W:.*]]: tensor<16x32xf32>) -> tensor<8x32xf32>
// CHECK: %[[F:.*]] = comm.all_gather %[[W]] on @dp : (tensor<16x32xf32>) -> !comm.future<tensor<64x32xf32>>
// CHECK: %[[G:.*]] = comm.wait %[[F]]
// CHECK: %[[Y:.*]] = "stablehlo.dot_general"(%[[X]], %[[G]])
// CHECK: %[[Z:.*]] = call @relu(%[[Y]])
// CHECK: return %[[Z]] : tensor<8x32xf32>
module attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  "sdy.mesh"() <{mesh = #sdy.mesh<["dp"=4, "tp"=2]>, sym_name = "mesh"}> : () -> ()
  func.func public @main(%x: tensor<32x64xf32>, %w: tensor<64x32xf32>) -> tensor<32x32xf32> {
    %y = "sdy.manual_computation"(%x, %w) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}, {}]>, <@mesh, [{"dp"}, {}]>]>, manual_axes = #sdy<manual_axes{"dp", "tp"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"dp"}, {}]>]>}> ({
    ^bb0(%a: tensor<8x64xf32>, %b: tensor<16x32xf32>):
      %g = "stablehlo.all_gather"(%b) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 2, 4, 6], [1, 3, 5, 7]]> : tensor<2x4xi64>, use_global_device_ids}> : (tensor<16x32xf32>) -> tensor<64x32xf32>
      %d = "stablehlo.dot_general"(%a, %g) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}> : (tensor<8x64xf32>, tensor<64x32xf32>) -> tensor<8x32xf32>
      %r = func.call @relu(%d) : (tensor<8x32xf32>) -> tensor<8x32xf32>
      "sdy.return"(%r) : (tensor<8x32xf32>) -> ()
    }) : (tensor<32x64xf32>, tensor<64x32xf32>) -> tensor<32x32xf32>
    return %y : tensor<32x32xf32>
  }
  func.func private @relu(%x: tensor<8x32xf32>) -> tensor<8x32xf32> {
    %0 = "stablehlo.constant"() <{value = dense<0.0> : tensor<8x32xf32>}> : () -> tensor<8x32xf32>
    %1 = "stablehlo.maximum"(%x, %0) : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<8x32xf32>
    return %1 : tensor<8x32xf32>
  }
}

// -----

// Tests the processes that numbers of replicas and partitions name: rank = replica * 2 + partition.
// CHECK-DAG: comm.group @[[REPLICAS:ranks[_0-9]*]] #comm.ranks<{{\[}}[0, 4], [1, 5], [2, 6], [3, 7]]>
// CHECK-DAG: comm.group @[[BOTH:ranks[_0-9]*]] #comm.ranks<{{\[}}[0, 4, 1, 5], [2, 6, 3, 7]]>
// CHECK-DAG: comm.group @[[IDS:ranks[_0-9]*]] #comm.ranks<{{\[}}[0, 4], [1, 2], [3, 5], [6, 7]]>
// CHECK-DAG: comm.group @[[PARTITIONS:ranks[_0-9]*]] #comm.ranks<{{\[}}[1, 0], [3, 2], [5, 4], [7, 6]]>
module attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 4 : i32} {
  // CHECK-LABEL: func @groupings
  func.func @groupings(%x: tensor<4xf32>) -> (tensor<8xf32>, tensor<16xf32>, tensor<8xf32>, tensor<4xf32>, tensor<4xf32>) {
    // CHECK: comm.all_gather %{{.*}} on @[[REPLICAS]] :
    %a = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>}> : (tensor<4xf32>) -> tensor<8xf32>
    // CHECK: comm.all_gather %{{.*}} on @[[BOTH]] :
    %b = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>, replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>}> : (tensor<4xf32>) -> tensor<16xf32>
    // CHECK: comm.all_gather %{{.*}} on @[[IDS]] :
    %c = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>, replica_groups = dense<[[0, 4, -1], [1, 2, -1], [3, 5, -1], [6, 7, -1]]> : tensor<4x3xi64>, use_global_device_ids}> : (tensor<4xf32>) -> tensor<8xf32>
    // CHECK: comm.all_to_all %{{.*}} on @[[PARTITIONS]] :
    %d = "stablehlo.all_to_all"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, concat_dimension = 0 : i64, replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>, split_count = 2 : i64, split_dimension = 0 : i64}> : (tensor<4xf32>) -> tensor<4xf32>
    // CHECK: comm.broadcast %{{.*}} on @[[REPLICAS]] root 0 :
    %e = "stablehlo.collective_broadcast"(%x) <{replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>}> : (tensor<4xf32>) -> tensor<4xf32>
    return %a, %b, %c, %d, %e : tensor<8xf32>, tensor<16xf32>, tensor<8xf32>, tensor<4xf32>, tensor<4xf32>
  }
}

// -----

// Tests that no groups mean all ranks, that several operands stay together, and the reductions.
// CHECK: comm.group @[[ALL:.*]] #comm.ranks<{{\[}}[0, 1, 2, 3]]>
module attributes {mhlo.num_partitions = 4 : i32} {
  // CHECK-LABEL: func @reductions
  func.func @reductions(%x: tensor<4xf32>, %y: tensor<8xf32>, %bits: tensor<4xi1>) -> (tensor<4xf32>, tensor<8xf32>, tensor<1xf32>, tensor<4xi1>) {
    // CHECK: comm.all_reduce sum %{{.*}}, %{{.*}} on @[[ALL]] : (tensor<4xf32>, tensor<8xf32>)
    %a:2 = "stablehlo.all_reduce"(%x, %y) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<> : tensor<0x0xi64>, use_global_device_ids}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %s = "stablehlo.add"(%q, %p) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) : (tensor<4xf32>, tensor<8xf32>) -> (tensor<4xf32>, tensor<8xf32>)
    // CHECK: comm.reduce_scatter product %{{.*}} on @[[ALL]] :
    %b = "stablehlo.reduce_scatter"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %s = "stablehlo.multiply"(%p, %q) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) : (tensor<4xf32>) -> tensor<1xf32>
    // CHECK: comm.all_reduce max %{{.*}} : (tensor<4xi1>)
    %c = "stablehlo.all_reduce"(%bits) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
    ^bb0(%p: tensor<i1>, %q: tensor<i1>):
      %s = "stablehlo.or"(%p, %q) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      "stablehlo.return"(%s) : (tensor<i1>) -> ()
    }) : (tensor<4xi1>) -> tensor<4xi1>
    return %a#0, %a#1, %b, %c : tensor<4xf32>, tensor<8xf32>, tensor<1xf32>, tensor<4xi1>
  }
}

// -----

// Tests that a permute is one in the groups of an axis if all groups have the same pairs, and one of all ranks otherwise.
module attributes {mhlo.num_partitions = 8 : i32} {
  "sdy.mesh"() <{mesh = #sdy.mesh<["dp"=4, "tp"=2]>, sym_name = "mesh"}> : () -> ()
  // CHECK-LABEL: func @permutes
  func.func @permutes(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    // CHECK: comm.permute %{{.*}} on @dp pairs [0, 1, 1, 2, 2, 3]
    %a = "stablehlo.collective_permute"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, source_target_pairs = dense<[[0, 2], [2, 4], [4, 6], [1, 3], [3, 5], [5, 7]]> : tensor<6x2xi64>}> : (tensor<4xf32>) -> tensor<4xf32>
    // CHECK: comm.permute %{{.*}} on @dp_tp pairs [0, 7]
    %b = "stablehlo.collective_permute"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, source_target_pairs = dense<[[0, 7]]> : tensor<1x2xi64>}> : (tensor<4xf32>) -> tensor<4xf32>
    return %a, %b : tensor<4xf32>, tensor<4xf32>
  }
}

// -----

// Tests loops and branches: one that counts has its trips, others run until their condition fails.
// CHECK-LABEL: func @loops
func.func @loops(%x: tensor<4xf32>, %flag: tensor<i1>, %index: tensor<i32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
  %limit = "stablehlo.constant"() <{value = dense<7> : tensor<i32>}> : () -> tensor<i32>
  %two = "stablehlo.constant"() <{value = dense<2> : tensor<i32>}> : () -> tensor<i32>
  // CHECK-DAG: %[[FROM:.*]] = arith.constant 0 : index
  // CHECK-DAG: %[[TO:.*]] = arith.constant 7 : index
  // CHECK-DAG: %[[STEP:.*]] = arith.constant 2 : index
  // CHECK: scf.for %{{.*}} = %[[FROM]] to %[[TO]] step %[[STEP]] iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %arg0)
  // CHECK: scf.yield
  %a:2 = "stablehlo.while"(%zero, %x) ({
  ^bb0(%i: tensor<i32>, %y: tensor<4xf32>):
    %c = "stablehlo.compare"(%i, %limit) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.return"(%c) : (tensor<i1>) -> ()
  }, {
  ^bb0(%i: tensor<i32>, %y: tensor<4xf32>):
    %next = "stablehlo.add"(%i, %two) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    %t = "stablehlo.tanh"(%y) : (tensor<4xf32>) -> tensor<4xf32>
    "stablehlo.return"(%next, %t) : (tensor<i32>, tensor<4xf32>) -> ()
  }) : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>)
  // CHECK: scf.while
  // CHECK: %[[C:.*]] = tensor.extract %{{.*}}[] : tensor<i1>
  // CHECK: scf.condition(%[[C]])
  %b = "stablehlo.while"(%x) ({
  ^bb0(%y: tensor<4xf32>):
    "stablehlo.return"(%flag) : (tensor<i1>) -> ()
  }, {
  ^bb0(%y: tensor<4xf32>):
    "stablehlo.return"(%y) : (tensor<4xf32>) -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: scf.if
  // CHECK: scf.yield
  // CHECK: } else {
  %c = "stablehlo.if"(%flag) ({
    %t = "stablehlo.tanh"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    "stablehlo.return"(%t) : (tensor<4xf32>) -> ()
  }, {
    "stablehlo.return"(%x) : (tensor<4xf32>) -> ()
  }) : (tensor<i1>) -> tensor<4xf32>
  // CHECK: scf.index_switch
  // CHECK: case 0
  // CHECK: default
  %d = "stablehlo.case"(%index) ({
    "stablehlo.return"(%x) : (tensor<4xf32>) -> ()
  }, {
    %t = "stablehlo.tanh"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    "stablehlo.return"(%t) : (tensor<4xf32>) -> ()
  }) : (tensor<i32>) -> tensor<4xf32>
  return %a#1, %b, %c, %d : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

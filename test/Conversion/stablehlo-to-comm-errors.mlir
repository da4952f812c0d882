// Tests that convert-stablehlo-to-comm refuses what the comm dialect cannot do, by name.

// RUN: comm-opt %s --convert-stablehlo-to-comm --split-input-file --verify-diagnostics

module attributes {mhlo.num_partitions = 4 : i32} {
  func.func @uneven_groups(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error@+1 {{expected groups of one size, because a comm.group has only such, got 3 and 1 ranks}}
    %y = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2], [3, -1, -1]]> : tensor<2x3xi64>, use_global_device_ids}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %s = "stablehlo.add"(%p, %q) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) : (tensor<4xf32>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
}

// -----

module attributes {mhlo.num_partitions = 4 : i32} {
  func.func @rank_left_out(%x: tensor<4xf32>) -> tensor<8xf32> {
    // expected-error@+1 {{expected 'replica_groups' to name every number below 4, because a comm.group divides all ranks, got none with 2}}
    %y = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> : (tensor<4xf32>) -> tensor<8xf32>
    return %y : tensor<8xf32>
  }
}

// -----

module attributes {mhlo.num_partitions = 2 : i32} {
  func.func @unknown_rank(%x: tensor<4xf32>) -> tensor<8xf32> {
    // expected-error@+1 {{expected 'replica_groups' to name numbers below 2, each once, got 5}}
    %y = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 5]]> : tensor<1x2xi64>, use_global_device_ids}> : (tensor<4xf32>) -> tensor<8xf32>
    return %y : tensor<8xf32>
  }
}

// -----

module attributes {mhlo.num_partitions = 2 : i32} {
  func.func @other_layout(%x: tensor<4xf32>) -> tensor<8xf32> {
    // expected-error@+1 {{expected 'replica_groups' to be a matrix of numbers, got #stablehlo.mesh_axes<["x"]>}}
    %y = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = #stablehlo.mesh_axes<["x"]>}> : (tensor<4xf32>) -> tensor<8xf32>
    return %y : tensor<8xf32>
  }
}

// -----

module attributes {mhlo.num_partitions = 2 : i32} {
  func.func @other_reduction(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error@+1 {{expected a reduction that is one stablehlo.add, multiply, minimum or maximum of its arguments, or one stablehlo.and or or of bits; got 'stablehlo.subtract' of tensor<4xf32>}}
    %y = "stablehlo.all_reduce"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %s = "stablehlo.subtract"(%p, %q) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) : (tensor<4xf32>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
}

// -----

module attributes {mhlo.num_partitions = 2 : i32} {
  func.func @split_count(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error@+1 {{expected 'split_count' to be the size of the groups (2), got 4}}
    %y = "stablehlo.all_to_all"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, concat_dimension = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, split_count = 4 : i64, split_dimension = 0 : i64}> : (tensor<4xf32>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
}

// -----

func.func @infeed(%token: !stablehlo.token) -> !stablehlo.token {
  // expected-error@+1 {{has no conversion to the comm dialect}}
  %x, %next = "stablehlo.infeed"(%token) : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
  return %next : !stablehlo.token
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=4, "tp"=2]>, sym_name = "mesh"}> : () -> ()
func.func @free_axis(%x: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error@+1 {{expected all axes of the mesh to be manual, because only XLA's partitioner knows the collectives of the others; got the axis 'tp' of 2 processes}}
  %y = "sdy.manual_computation"(%x) <{manual_axes = #sdy<manual_axes{"dp"}>}> ({
  ^bb0(%a: tensor<2xf32>):
    "sdy.return"(%a) : (tensor<2xf32>) -> ()
  }) : (tensor<8xf32>) -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=4]>, sym_name = "mesh"}> : () -> ()
func.func @whole_tensors(%x: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error@+1 {{works on whole tensors, outside of 'sdy.manual_computation': only XLA's partitioner knows how to divide it}}
  %t = "stablehlo.tanh"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %y = "sdy.manual_computation"(%t) <{manual_axes = #sdy<manual_axes{"dp"}>}> ({
  ^bb0(%a: tensor<2xf32>):
    "sdy.return"(%a) : (tensor<2xf32>) -> ()
  }) : (tensor<8xf32>) -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=4]>, sym_name = "mesh"}> : () -> ()
func.func @resharded(%x: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %y = "sdy.manual_computation"(%x) <{manual_axes = #sdy<manual_axes{"dp"}>}> ({
  ^bb0(%a: tensor<2x8xf32>):
    "sdy.return"(%a) : (tensor<2x8xf32>) -> ()
  }) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  // expected-error@+1 {{results of other manual computations with the same sharding; operand #0 is divided in another way}}
  %z = "sdy.manual_computation"(%y) <{manual_axes = #sdy<manual_axes{"dp"}>}> ({
  ^bb0(%a: tensor<8x2xf32>):
    "sdy.return"(%a) : (tensor<8x2xf32>) -> ()
  }) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %y, %z : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

"sdy.mesh"() <{mesh = #sdy.mesh<["dp"=4]>, sym_name = "mesh"}> : () -> ()
func.func @only_shardings(%x: tensor<8xf32>) -> tensor<8xf32> {
  // expected-warning@+1 {{the program has shardings and no collectives: XLA's partitioner makes them, later}}
  %t = "stablehlo.tanh"(%x) {sdy.sharding = #sdy.sharding<@mesh, [{"dp"}]>} : (tensor<8xf32>) -> tensor<8xf32>
  return %t : tensor<8xf32>
}

// Tests that convert-shard-to-comm refuses what the comm dialect cannot do, by name.

// RUN: comm-opt %s --convert-shard-to-comm --split-input-file --verify-diagnostics

// expected-note@+1 {{the grid is here}}
shard.grid @g(shape = 2x?)
func.func @dynamic_grid(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{expected a grid of a static shape, because the groups of ranks are known at compile time}}
  %y = shard.all_reduce %x on @g grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

shard.grid @g(shape = 4)
func.func @value_as_root(%x: tensor<4xf32>, %root: index) -> tensor<4xf32> {
  // expected-error@+1 {{expected the coordinates of 'root' to be constants, got a value}}
  %y = shard.broadcast %x on @g grid_axes = [0] root = [%root] : (tensor<4xf32>, index) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

shard.grid @g(shape = 4)
func.func @any_source(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{expected a 'source', because comm.recv receives from one rank; got none}}
  %y = shard.recv %x on @g grid_axes = [0] : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

shard.grid @g(shape = 4)
func.func @dynamic_message(%x: tensor<?xf32>) -> tensor<?xf32> {
  // expected-error@+1 {{expected a message of a static shape, got 'tensor<?xf32>'}}
  %y = shard.recv %x on @g grid_axes = [0] source = [0] : (tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

shard.grid @g(shape = 4)
func.func @dynamic_pieces(%x: tensor<?xf32>) -> tensor<?xf32> {
  // expected-error@+1 {{expected dimension 0 ('scatter_axis') to have a static size, because it is divided among 4 ranks; got 'tensor<?xf32>'}}
  %y = shard.reduce_scatter %x on @g grid_axes = [0] scatter_axis = 0 : tensor<?xf32> -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

shard.grid @g(shape = 4)
func.func @xor(%x: tensor<4xi32>) -> tensor<4xi32> {
  // expected-error@+1 {{the reduction 'bitwise_xor' of elements of type 'i32' has no counterpart in the comm dialect}}
  %y = shard.all_reduce %x on @g grid_axes = [0] reduction = bitwise_xor : tensor<4xi32> -> tensor<4xi32>
  return %y : tensor<4xi32>
}

// -----

shard.grid @g(shape = 4)
func.func @average_of_integers(%x: tensor<4xi32>) -> tensor<4xi32> {
  // expected-error@+1 {{the reduction 'average' of elements of type 'i32' has no counterpart}}
  %y = shard.all_reduce %x on @g grid_axes = [0] reduction = average : tensor<4xi32> -> tensor<4xi32>
  return %y : tensor<4xi32>
}

// -----

shard.grid @g(shape = 4)
func.func @buffers(%x: memref<4xf32>) -> memref<4xf32> {
  // expected-error@+1 {{expected a tensor, got 'memref<4xf32>'}}
  %y = shard.all_reduce %x on @g grid_axes = [0] : memref<4xf32> -> memref<4xf32>
  return %y : memref<4xf32>
}

// -----

shard.grid @g(shape = 4)
func.func @not_partitioned(%x: tensor<4xf32>) -> tensor<4xf32> {
  %s = shard.sharding @g split_axes = [[0]] : !shard.sharding
  // expected-error@+1 {{expected a partitioned program; run --sharding-propagation and --shard-partition first}}
  %y = shard.shard %x to %s : tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

shard.grid @g(shape = 4)
func.func @uneven_shards() -> index {
  %s = shard.sharding @g split_axes = [[0]] sharded_dims_offsets = [0, 1, 2, 3, 8] : !shard.sharding
  %c0 = arith.constant 0 : index
  // expected-error@+1 {{expected shards of one shape, got a sharding with 'sharded_dims_offsets' or 'halo_sizes'}}
  %d = shard.shard_shape dims = [8] sharding = %s device = [%c0] : index
  return %d : index
}

// -----

shard.grid @g(shape = 4)
func.func @unknown_sharding(%x: tensor<4xf32>) -> !shard.sharding {
  // expected-error@+1 {{expected a tensor that a shard.shard gives its sharding, got none}}
  %s = shard.get_sharding %x : tensor<4xf32> -> !shard.sharding
  return %s : !shard.sharding
}

// -----

shard.grid @g(shape = 4)
func.func @dynamic_halo(%x: tensor<4xf32>, %n: i64) -> tensor<4xf32> {
  // expected-error@+1 {{expected the sizes of halos to be constants, got a value}}
  %y = shard.update_halo %x on @g split_axes = [[0]] halo_sizes = [%n, 1] : tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

shard.grid @g(shape = 4)
func.func @wide_halo(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{expected dimension 0 to have as many elements of its own as its halo, got 1}}
  %y = shard.update_halo %x on @g split_axes = [[0]] halo_sizes = [2, 1] : tensor<4xf32>
  return %y : tensor<4xf32>
}

// Tests the form that convert-shard-to-comm gives each collective. What they compute is tested by test/Run/shard.test.

// RUN: comm-opt %s --convert-shard-to-comm --canonicalize --cse --split-input-file | FileCheck %s --implicit-check-not=shard.

// Tests that the axes of a grid become groups, once each, and that their order is the order of the ranks in a group.
// CHECK-DAG: comm.group @grid_1 #comm.iota<[2, 3]>
// CHECK-DAG: comm.group @grid_0 #comm.iota<[3, 2] from [2, 3] transpose [1, 0]>
// CHECK-DAG: comm.group @grid_1_0 #comm.iota<[1, 6] from [2, 3] transpose [1, 0]>
shard.grid @grid(shape = 2x3)

// CHECK-LABEL: func @groups
// CHECK: comm.all_gather %{{.*}} on @grid_1 dim 1 : (tensor<2x4xf32>) -> !comm.future<tensor<2x12xf32>>
// CHECK: comm.wait
// CHECK: comm.all_reduce max %{{.*}} on @grid_0
// CHECK: comm.all_gather %{{.*}} on @grid_1_0 :
// CHECK: comm.reduce_scatter sum %{{.*}} on @grid_1 dim 1
func.func @groups(%x: tensor<2x4xf32>, %y: tensor<2x3xf32>)
    -> (tensor<2x12xf32>, tensor<2x4xf32>, tensor<12x4xf32>, tensor<2x1xf32>) {
  %a = shard.all_gather %x on @grid grid_axes = [1] gather_axis = 1 : tensor<2x4xf32> -> tensor<2x12xf32>
  %b = shard.all_reduce %x on @grid grid_axes = [0] reduction = max : tensor<2x4xf32> -> tensor<2x4xf32>
  %c = shard.all_gather %x on @grid grid_axes = [1, 0] gather_axis = 0 : tensor<2x4xf32> -> tensor<12x4xf32>
  %d = shard.reduce_scatter %y on @grid grid_axes = [1] scatter_axis = 1 : tensor<2x3xf32> -> tensor<2x1xf32>
  return %a, %b, %c, %d : tensor<2x12xf32>, tensor<2x4xf32>, tensor<12x4xf32>, tensor<2x1xf32>
}

// Tests that a reduction converts its input first, and that "and" and "or" of bits are the minimum and the maximum.
// CHECK-LABEL: func @reductions
// CHECK: %[[WIDE:.*]] = linalg.generic {{.*}} ins(%{{.*}} : tensor<3xf32>)
// CHECK: arith.extf
// CHECK: comm.all_reduce sum %[[WIDE]] on @grid_0 : (tensor<3xf64>)
// CHECK: comm.all_reduce min {{.*}} : (tensor<3xi1>)
// CHECK: comm.all_reduce max {{.*}} : (tensor<3xi1>)
// CHECK: comm.all_reduce avg {{.*}} : (tensor<3xf32>)
func.func @reductions(%x: tensor<3xf32>, %bits: tensor<3xi1>)
    -> (tensor<3xf64>, tensor<3xi1>, tensor<3xi1>, tensor<3xf32>) {
  %a = shard.all_reduce %x on @grid grid_axes = [0] : tensor<3xf32> -> tensor<3xf64>
  %b = shard.all_reduce %bits on @grid grid_axes = [0] reduction = bitwise_and : tensor<3xi1> -> tensor<3xi1>
  %c = shard.all_reduce %bits on @grid grid_axes = [0] reduction = bitwise_or : tensor<3xi1> -> tensor<3xi1>
  %d = shard.all_reduce %x on @grid grid_axes = [0] reduction = average : tensor<3xf32> -> tensor<3xf32>
  return %a, %b, %c, %d : tensor<3xf64>, tensor<3xi1>, tensor<3xi1>, tensor<3xf32>
}

// Tests that coordinates in a group become places, and that a shift without `rotate` leaves the ends out.
// CHECK-LABEL: func @places
// CHECK: comm.broadcast %{{.*}} on @grid_1_0 root 3
// CHECK: comm.scatter %{{.*}} on @grid_1 root 2
// CHECK: comm.gather %{{.*}} on @grid_0 root 1 dim 1
// CHECK: comm.permute %{{.*}} on @grid_1_0 pairs [0, 4, 1, 5]
// CHECK: comm.permute %{{.*}} on @grid_1 pairs [0, 2, 1, 0, 2, 1]
func.func @places(%x: tensor<3x2xf32>) -> (tensor<3x2xf32>, tensor<1x2xf32>, tensor<3x4xf32>, tensor<3x2xf32>, tensor<3x2xf32>) {
  %a = shard.broadcast %x on @grid grid_axes = [1, 0] root = [1, 1] : (tensor<3x2xf32>) -> tensor<3x2xf32>
  %b = shard.scatter %x on @grid grid_axes = [1] scatter_axis = 0 root = [2] : (tensor<3x2xf32>) -> tensor<1x2xf32>
  %c = shard.gather %x on @grid grid_axes = [0] gather_axis = 1 root = [1] : (tensor<3x2xf32>) -> tensor<3x4xf32>
  %d = shard.shift %x on @grid grid_axes = [1, 0] shift_axis = 1 offset = 2 : tensor<3x2xf32> -> tensor<3x2xf32>
  %e = shard.shift %x on @grid grid_axes = [1] shift_axis = 1 offset = -1 rotate : tensor<3x2xf32> -> tensor<3x2xf32>
  return %a, %b, %c, %d, %e : tensor<3x2xf32>, tensor<1x2xf32>, tensor<3x4xf32>, tensor<3x2xf32>, tensor<3x2xf32>
}

// Tests that questions about the process become arithmetic on the rank, and that sizes without communication stay dynamic.
// CHECK-LABEL: func @process
// CHECK: %[[RANK:.*]] = comm.rank : index
// CHECK: %[[ROW:.*]] = arith.divui %[[RANK]], %{{.*}}
// CHECK: %[[COLUMN:.*]] = arith.remui %[[RANK]], %{{.*}}
// CHECK: tensor.extract_slice %{{.*}}[0, %{{.*}}] [%{{.*}}, 2] [1, 1] : tensor<?x6xf32> to tensor<?x2xf32>
// CHECK: return %[[RANK]], %[[ROW]], %[[COLUMN]], %c3
func.func @process(%x: tensor<?x6xf32>) -> (index, index, index, index, tensor<?x2xf32>) {
  %rank = shard.process_linear_index on @grid : index
  %at:2 = shard.process_multi_index on @grid : index, index
  %size = shard.grid_shape @grid axes = [1] : index
  %piece = shard.all_slice %x on @grid grid_axes = [1] slice_axis = 1 : tensor<?x6xf32> -> tensor<?x2xf32>
  return %rank, %at#0, %at#1, %size, %piece : index, index, index, index, tensor<?x2xf32>
}

// Tests that the borders have no neighbours, and that a group of one process communicates nothing.
// CHECK-LABEL: func @neighbours
// CHECK-NEXT: %[[NONE:.*]] = arith.constant -1 : index
// CHECK-NEXT: %[[FIVE:.*]] = arith.constant 5 : index
// CHECK-NEXT: return %[[NONE]], %[[FIVE]], %arg0
func.func @neighbours(%x: tensor<4xf32>) -> (index, index, tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %n:2 = shard.neighbors_linear_indices on @grid[%c0, %c2] split_axes = [0] : index, index
  %same = shard.all_reduce %x on @grid : tensor<4xf32> -> tensor<4xf32>
  return %n#0, %n#1, %same : index, index, tensor<4xf32>
}

// -----

// Tests that a symbol of the program keeps its name.
shard.grid @g(shape = 4)
// CHECK: comm.group @[[OTHER:g_0_[0-9]+]]
// CHECK: func @g_0
func.func @g_0(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: on @[[OTHER]]
  %y = shard.all_reduce %x on @g grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

// Tests the shape of equal shards, and a sharding that is only asked for.
shard.grid @g(shape = 4)
// CHECK-LABEL: func @shapes
// CHECK: return %c2, %arg0
func.func @shapes(%n: index) -> (index, index) {
  %s = shard.sharding @g split_axes = [[0], []] : !shard.sharding
  %c0 = arith.constant 0 : index
  %d:2 = shard.shard_shape dims = [8, %n] sharding = %s device = [%c0] : index, index
  return %d#0, %d#1 : index, index
}

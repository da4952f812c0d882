// Two layers as one program for 4 processes: the rows of the activations and of the weights are divided among them. Each process
// scales its rows of the weights and gathers the result where a product reads it. unsharded-layers.mlir is the same program
// without annotations.
#id = affine_map<(d0, d1) -> (d0, d1)>
shard.grid @grid(shape = 4)

func.func @main(%x: tensor<8x16xf32>, %w1: tensor<16x32xf32>, %w2: tensor<32x16xf32>) -> tensor<8x16xf32> {
  %whole = shard.sharding @grid split_axes = [[]] : !shard.sharding
  %rows = shard.sharding @grid split_axes = [[0]] : !shard.sharding
  %x0 = shard.shard %x to %whole : tensor<8x16xf32>
  %x1 = shard.shard %x0 to %rows annotate_for_users : tensor<8x16xf32>
  %w1a = shard.shard %w1 to %whole : tensor<16x32xf32>
  %w1b = shard.shard %w1a to %rows annotate_for_users : tensor<16x32xf32>
  %w2a = shard.shard %w2 to %whole : tensor<32x16xf32>
  %w2b = shard.shard %w2a to %rows annotate_for_users : tensor<32x16xf32>

  %half = arith.constant 0.5 : f32
  %e1 = tensor.empty() : tensor<16x32xf32>
  %v1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%w1b : tensor<16x32xf32>) outs(%e1 : tensor<16x32xf32>) {
  ^bb0(%in: f32, %out: f32):
    %scaled = arith.mulf %in, %half : f32
    linalg.yield %scaled : f32
  } -> tensor<16x32xf32>
  %v1a = shard.shard %v1 to %rows : tensor<16x32xf32>
  %v1b = shard.shard %v1a to %whole annotate_for_users : tensor<16x32xf32>

  %zero = arith.constant 0.0 : f32
  %e2 = tensor.empty() : tensor<8x32xf32>
  %zeros2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<8x32xf32>) -> tensor<8x32xf32>
  %h = linalg.matmul ins(%x1, %v1b : tensor<8x16xf32>, tensor<16x32xf32>) outs(%zeros2 : tensor<8x32xf32>) -> tensor<8x32xf32>

  %e3 = tensor.empty() : tensor<32x16xf32>
  %v2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%w2b : tensor<32x16xf32>) outs(%e3 : tensor<32x16xf32>) {
  ^bb0(%in: f32, %out: f32):
    %scaled = arith.mulf %in, %half : f32
    linalg.yield %scaled : f32
  } -> tensor<32x16xf32>
  %v2a = shard.shard %v2 to %rows : tensor<32x16xf32>
  %v2b = shard.shard %v2a to %whole annotate_for_users : tensor<32x16xf32>

  %e4 = tensor.empty() : tensor<8x16xf32>
  %zeros4 = linalg.fill ins(%zero : f32) outs(%e4 : tensor<8x16xf32>) -> tensor<8x16xf32>
  %y = linalg.matmul ins(%h, %v2b : tensor<8x32xf32>, tensor<32x16xf32>) outs(%zeros4 : tensor<8x16xf32>) -> tensor<8x16xf32>
  %y0 = shard.shard %y to %rows : tensor<8x16xf32>
  %y1 = shard.shard %y0 to %whole annotate_for_users : tensor<8x16xf32>
  return %y1 : tensor<8x16xf32>
}

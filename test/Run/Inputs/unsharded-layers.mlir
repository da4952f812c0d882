#id = affine_map<(d0, d1) -> (d0, d1)>

func.func @main(%x: tensor<8x16xf32>, %w1: tensor<16x32xf32>, %w2: tensor<32x16xf32>) -> tensor<8x16xf32> {

  %half = arith.constant 0.5 : f32
  %e1 = tensor.empty() : tensor<16x32xf32>
  %v1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%w1 : tensor<16x32xf32>) outs(%e1 : tensor<16x32xf32>) {
  ^bb0(%in: f32, %out: f32):
    %scaled = arith.mulf %in, %half : f32
    linalg.yield %scaled : f32
  } -> tensor<16x32xf32>

  %zero = arith.constant 0.0 : f32
  %e2 = tensor.empty() : tensor<8x32xf32>
  %zeros2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<8x32xf32>) -> tensor<8x32xf32>
  %h = linalg.matmul ins(%x, %v1 : tensor<8x16xf32>, tensor<16x32xf32>) outs(%zeros2 : tensor<8x32xf32>) -> tensor<8x32xf32>

  %e3 = tensor.empty() : tensor<32x16xf32>
  %v2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%w2 : tensor<32x16xf32>) outs(%e3 : tensor<32x16xf32>) {
  ^bb0(%in: f32, %out: f32):
    %scaled = arith.mulf %in, %half : f32
    linalg.yield %scaled : f32
  } -> tensor<32x16xf32>

  %e4 = tensor.empty() : tensor<8x16xf32>
  %zeros4 = linalg.fill ins(%zero : f32) outs(%e4 : tensor<8x16xf32>) -> tensor<8x16xf32>
  %y = linalg.matmul ins(%h, %v2 : tensor<8x32xf32>, tensor<32x16xf32>) outs(%zeros4 : tensor<8x16xf32>) -> tensor<8x16xf32>
  return %y : tensor<8x16xf32>
}

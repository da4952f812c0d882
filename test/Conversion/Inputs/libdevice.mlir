// A function of f64 that a GPU computes by NVIDIA's library alone.
func.func @main(%x: tensor<8xf64>) -> tensor<8xf64> {
  %e = tensor.empty() : tensor<8xf64>
  %y = linalg.exp ins(%x : tensor<8xf64>) outs(%e : tensor<8xf64>) -> tensor<8xf64>
  return %y : tensor<8xf64>
}

comm.group @w #comm.iota<[1, 2]>
func.func @main(%x: tensor<16xf32>) -> (tensor<16xf32>, f32) {
  %c0 = arith.constant 0 : index
  %c = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<16xf32>
  %a = linalg.fill ins(%c : f32) outs(%e0 : tensor<16xf32>) -> tensor<16xf32>
  comm.compute "add"(%x, %x, %a) mutates [2] {outputs = 1 : i64} : (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) -> ()
  %v = tensor.extract %a[%c0] : tensor<16xf32>
  return %a, %v : tensor<16xf32>, f32
}

// A step with computations that become kernels of the program, and one that is the runtime's: see docs/guide/Gpu.md.
comm.group @dp #comm.iota<[1, 2]>

func.func @main(%x: tensor<300x16xf32>, %w: tensor<16x16xf32>) -> (tensor<300x16xf32>, tensor<16xf32>) {
  %empty = tensor.empty() : tensor<300x16xf32>
  %zero = arith.constant 0.0 : f32
  %started = comm.all_reduce sum %w on @dp : (tensor<16x16xf32>) -> !comm.future<tensor<16x16xf32>>
  %squares = linalg.square ins(%x : tensor<300x16xf32>) outs(%empty : tensor<300x16xf32>) -> tensor<300x16xf32>
  %sum = comm.wait %started : !comm.future<tensor<16x16xf32>>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<300x16xf32>) -> tensor<300x16xf32>
  %y = linalg.matmul ins(%squares, %sum : tensor<300x16xf32>, tensor<16x16xf32>)
                     outs(%zeros : tensor<300x16xf32>) -> tensor<300x16xf32>
  %half = arith.constant dense<0.5> : tensor<16xf32>
  %columns = linalg.reduce ins(%y : tensor<300x16xf32>) outs(%half : tensor<16xf32>) dimensions = [0]
    (%in: f32, %out: f32) {
      %0 = arith.addf %out, %in : f32
      linalg.yield %0 : f32
    }
  return %y, %columns : tensor<300x16xf32>, tensor<16xf32>
}

comm.group @dp #comm.iota<[1, 8]>
func.func @empty() { return }
func.func @dyn(%x: tensor<?x16xf32>, %w: tensor<16x16xf32>) -> tensor<?x16xf32> {
  %f = comm.all_reduce sum %x on @dp : (tensor<?x16xf32>) -> !comm.future<tensor<?x16xf32>>
  %y = comm.wait %f : !comm.future<tensor<?x16xf32>>
  %z = comm.compute "matmul"(%y, %w) : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return %z : tensor<?x16xf32>
}
func.func @none(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }

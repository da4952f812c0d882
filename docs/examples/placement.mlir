// Gradients are summed over 16 ranks (@dp), and tokens exchanged between 8 (@ep). With 8 ranks per node, as given, the sum uses the network.
comm.group @ep #comm.iota<[16, 8]>
comm.group @dp #comm.iota<[8, 16] from [16, 8] transpose [1, 0]>

func.func @step(%tokens: tensor<1048576xf32>, %gradient: tensor<33554432xf32>) -> (tensor<1048576xf32>, tensor<33554432xf32>) {
  %exchange = comm.all_to_all %tokens on @ep : (tensor<1048576xf32>) -> !comm.future<tensor<1048576xf32>>
  %mine = comm.wait %exchange : !comm.future<tensor<1048576xf32>>
  %out = comm.compute "experts"(%mine) {comm.cost = #comm.cost<time = 500000>} : (tensor<1048576xf32>) -> tensor<1048576xf32>
  %reduction = comm.all_reduce sum %gradient on @dp : (tensor<33554432xf32>) -> !comm.future<tensor<33554432xf32>>
  %sum = comm.wait %reduction : !comm.future<tensor<33554432xf32>>
  return %out, %sum : tensor<1048576xf32>, tensor<33554432xf32>
}

// Two layers whose weights are gathered from eight ranks. The second gather is asked for when it is needed, so nothing
// hides it. README.md shows this program and what becomes of it.
comm.group @dp #comm.iota<[1, 8]>

func.func @forward(%x: tensor<8192x4096xbf16>, %w1: tensor<512x4096xbf16>, %w2: tensor<512x4096xbf16>) -> tensor<8192x4096xbf16> {
  %f1 = comm.all_gather %w1 on @dp : (tensor<512x4096xbf16>) -> !comm.future<tensor<4096x4096xbf16>>
  %full1 = comm.wait %f1 : !comm.future<tensor<4096x4096xbf16>>
  %h = comm.compute "matmul"(%x, %full1) {comm.cost = #comm.cost<flops = 274877906944>} : (tensor<8192x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<8192x4096xbf16>
  %f2 = comm.all_gather %w2 on @dp : (tensor<512x4096xbf16>) -> !comm.future<tensor<4096x4096xbf16>>
  %full2 = comm.wait %f2 : !comm.future<tensor<4096x4096xbf16>>
  %y = comm.compute "matmul"(%h, %full2) {comm.cost = #comm.cost<flops = 274877906944>} : (tensor<8192x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<8192x4096xbf16>
  return %y : tensor<8192x4096xbf16>
}

comm.group @dp #comm.iota<[1, 64]>

func.func @step(%w: tensor<64x4096xbf16>, %x: tensor<8192x4096xbf16>, %c: tensor<4096x4096xbf16>) -> tensor<64x4096xbf16> {
  %f = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 900000>} : (tensor<64x4096xbf16>) -> !comm.future<tensor<4096x4096xbf16>>
  %g = comm.wait %f : !comm.future<tensor<4096x4096xbf16>>
  %h = comm.compute "aten.mm"(%x, %g) {comm.cost = #comm.cost<time = 300000>} : (tensor<8192x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<8192x4096xbf16>
  %y = comm.compute "aten.mm"(%h, %c) {comm.cost = #comm.cost<time = 300000>} : (tensor<8192x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<8192x4096xbf16>
  %d = comm.compute "loss"(%y) {comm.cost = #comm.cost<time = 50000>} : (tensor<8192x4096xbf16>) -> tensor<8192x4096xbf16>
  %b = comm.compute "aten.mm"(%d, %h) {comm.cost = #comm.cost<time = 300000>} : (tensor<8192x4096xbf16>, tensor<8192x4096xbf16>) -> tensor<4096x4096xbf16>
  %f2 = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 900000>} : (tensor<64x4096xbf16>) -> !comm.future<tensor<4096x4096xbf16>>
  %g2 = comm.wait %f2 : !comm.future<tensor<4096x4096xbf16>>
  %e = comm.compute "aten.mm"(%b, %g2) {comm.cost = #comm.cost<time = 150000>} : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
  %r = comm.reduce_scatter sum %e on @dp {comm.cost = #comm.cost<time = 900000>} : (tensor<4096x4096xbf16>) -> !comm.future<tensor<64x4096xbf16>>
  %s = comm.wait %r : !comm.future<tensor<64x4096xbf16>>
  return %s : tensor<64x4096xbf16>
}

comm.group @tp #comm.iota<[1, 8]>

func.func @layer(%x: tensor<8192x4096xbf16>, %up: tensor<4096x1792xbf16>, %down: tensor<1792x4096xbf16>, %next: tensor<4096x1792xbf16>) -> tensor<8192x1792xbf16> {
  %h = comm.compute "aten.mm"(%x, %up) {comm.cost = #comm.cost<flops = 120259084288, bytes = 111149056>} : (tensor<8192x4096xbf16>, tensor<4096x1792xbf16>) -> tensor<8192x1792xbf16>
  %y = comm.compute "aten.mm"(%h, %down) {comm.cost = #comm.cost<flops = 120259084288, bytes = 111149056>} : (tensor<8192x1792xbf16>, tensor<1792x4096xbf16>) -> tensor<8192x4096xbf16>
  %f = comm.all_reduce sum %y on @tp : (tensor<8192x4096xbf16>) -> !comm.future<tensor<8192x4096xbf16>>
  %s = comm.wait %f : !comm.future<tensor<8192x4096xbf16>>
  %z = comm.compute "aten.mm"(%s, %next) {comm.cost = #comm.cost<flops = 120259084288, bytes = 111149056>} : (tensor<8192x4096xbf16>, tensor<4096x1792xbf16>) -> tensor<8192x1792xbf16>
  return %z : tensor<8192x1792xbf16>
}

comm.group @dp #comm.iota<[1, 64]>

func.func @forward(%params: tensor<16x128x8192xbf16>, %x: tensor<16384x8192xbf16>) -> tensor<16384x8192xbf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %y = scf.for %i = %c0 to %c16 step %c1 iter_args(%h = %x) -> (tensor<16384x8192xbf16>) {
    %shard = tensor.extract_slice %params[%i, 0, 0] [1, 128, 8192] [1, 1, 1] : tensor<16x128x8192xbf16> to tensor<128x8192xbf16>
    %f = comm.all_gather %shard on @dp : (tensor<128x8192xbf16>) -> !comm.future<tensor<8192x8192xbf16>>
    %w = comm.wait %f : !comm.future<tensor<8192x8192xbf16>>
    %next = comm.compute "layer"(%h, %w) {comm.cost = #comm.cost<time = 3000000>} : (tensor<16384x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<16384x8192xbf16>
    scf.yield %next : tensor<16384x8192xbf16>
  }
  return %y : tensor<16384x8192xbf16>
}

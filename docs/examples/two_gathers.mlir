// Two small gathers, one of a cast. docs/guide/Rewrites.md shows what comm-bucket makes of them.
comm.group @dp #comm.iota<[1, 4]>
func.func @f(%a: tensor<2x2xf32>, %b: tensor<6xbf16>) -> (tensor<8x2xbf16>, tensor<24xbf16>) {
  %h = comm.compute "cast"(%a) : (tensor<2x2xf32>) -> tensor<2x2xbf16>
  %f0 = comm.all_gather %h on @dp : (tensor<2x2xbf16>) -> !comm.future<tensor<8x2xbf16>>
  %w0 = comm.wait %f0 : !comm.future<tensor<8x2xbf16>>
  %f1 = comm.all_gather %b on @dp : (tensor<6xbf16>) -> !comm.future<tensor<24xbf16>>
  %w1 = comm.wait %f1 : !comm.future<tensor<24xbf16>>
  return %w0, %w1 : tensor<8x2xbf16>, tensor<24xbf16>
}

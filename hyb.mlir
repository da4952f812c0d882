module {
  comm.group @default_pg #comm.iota<[1, 4]> loc("default_pg")
  func.func @main(%a: tensor<8192x8192xf32> loc("a"), %b: tensor<8192x8192xf32> loc("b"), %s: tensor<16xf32> loc("s")) -> (tensor<64xf32>, tensor<2048x8192xf32>, tensor<8192x8192xf32>) {
    %all_gather_into_tensor_default = comm.all_gather %s on @default_pg : (tensor<16xf32>) -> !comm.future<tensor<64xf32>> loc("all_gather_into_tensor_default")
    %wait_tensor_default = comm.wait %all_gather_into_tensor_default : !comm.future<tensor<64xf32>> loc("wait_tensor_default")
    %fused_matmul_reduce_scatter_default = comm.compute "symm_mem.fused_matmul_reduce_scatter.default"(%a, %b) side_effects {comm.cost = #comm.cost<flops = 1099511627776, bytes = 603979776>, comm.hybrid = @default_pg} : (tensor<8192x8192xf32>, tensor<8192x8192xf32>) -> tensor<2048x8192xf32> loc("fused_matmul_reduce_scatter_default")
    %mm_default = comm.compute "aten.mm.default"(%a, %b) {comm.cost = #comm.cost<flops = 1099511627776, bytes = 805306368>} : (tensor<8192x8192xf32>, tensor<8192x8192xf32>) -> tensor<8192x8192xf32> loc("mm_default")
    return %wait_tensor_default, %fused_matmul_reduce_scatter_default, %mm_default : tensor<64xf32>, tensor<2048x8192xf32>, tensor<8192x8192xf32> loc("output")
  } loc("main")
} loc(unknown)

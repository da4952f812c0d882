// One training step of two linear layers under fully sharded data parallelism (FSDP) on 8 ranks, as a framework would write
// it down: each weight is gathered right before it is used and its gradient is scattered right after it is made, so every
// collective is waited for at once and nothing hides it. Shapes are those of a 4096-wide model at 8192 tokens per rank.
//
//   comm-opt docs/examples/two_layer_fsdp.mlir --reorder-comm-overlap --comm-machine=h100-sxm

#row_by_row = affine_map<(m, n, k) -> (m, k)>
#column = affine_map<(m, n, k) -> (k, n)>
#column_transposed = affine_map<(m, n, k) -> (n, k)>
#row_transposed = affine_map<(m, n, k) -> (k, m)>
#out = affine_map<(m, n, k) -> (m, n)>

// Eight ranks in one group.
comm.group @dp #comm.iota<[1, 8]>

// %x: this rank's tokens. %target: what they should become. %w1, %w2: this rank's shards of the weights.
// The results are this rank's shards of the weights' gradients.
func.func @step(%x: tensor<8192x4096xbf16>, %target: tensor<8192x4096xbf16>,
                %w1: tensor<512x4096xbf16>, %w2: tensor<512x4096xbf16>)
    -> (tensor<512x4096xbf16>, tensor<512x4096xbf16>) {
  %zero = arith.constant 0.0 : bf16

  // Forward, layer 1: h = x W1.
  %w1_started = comm.all_gather %w1 on @dp : (tensor<512x4096xbf16>) -> !comm.future<tensor<4096x4096xbf16>>
  %w1_full = comm.wait %w1_started : !comm.future<tensor<4096x4096xbf16>>
  %h_empty = tensor.empty() : tensor<8192x4096xbf16>
  %h_zero = linalg.fill ins(%zero : bf16) outs(%h_empty : tensor<8192x4096xbf16>) -> tensor<8192x4096xbf16>
  %h = linalg.matmul ins(%x, %w1_full : tensor<8192x4096xbf16>, tensor<4096x4096xbf16>)
      outs(%h_zero : tensor<8192x4096xbf16>) -> tensor<8192x4096xbf16>

  // Forward, layer 2: y = h W2, and the error y - target.
  %w2_started = comm.all_gather %w2 on @dp : (tensor<512x4096xbf16>) -> !comm.future<tensor<4096x4096xbf16>>
  %w2_full = comm.wait %w2_started : !comm.future<tensor<4096x4096xbf16>>
  %y_empty = tensor.empty() : tensor<8192x4096xbf16>
  %y_zero = linalg.fill ins(%zero : bf16) outs(%y_empty : tensor<8192x4096xbf16>) -> tensor<8192x4096xbf16>
  %y = linalg.matmul ins(%h, %w2_full : tensor<8192x4096xbf16>, tensor<4096x4096xbf16>)
      outs(%y_zero : tensor<8192x4096xbf16>) -> tensor<8192x4096xbf16>
  %dy_empty = tensor.empty() : tensor<8192x4096xbf16>
  %dy = linalg.sub ins(%y, %target : tensor<8192x4096xbf16>, tensor<8192x4096xbf16>)
      outs(%dy_empty : tensor<8192x4096xbf16>) -> tensor<8192x4096xbf16>

  // Backward, layer 2: the weight's gradient hT dy, averaged over the ranks and scattered.
  %dw2_empty = tensor.empty() : tensor<4096x4096xbf16>
  %dw2_zero = linalg.fill ins(%zero : bf16) outs(%dw2_empty : tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
  %dw2_full = linalg.matmul indexing_maps = [#row_transposed, #column, #out]
      ins(%h, %dy : tensor<8192x4096xbf16>, tensor<8192x4096xbf16>)
      outs(%dw2_zero : tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
  %dw2_started = comm.reduce_scatter avg %dw2_full on @dp : (tensor<4096x4096xbf16>) -> !comm.future<tensor<512x4096xbf16>>
  %dw2 = comm.wait %dw2_started : !comm.future<tensor<512x4096xbf16>>

  // The weight was freed after the forward pass in a deeper model: gather it again for dh = dy W2T.
  %w2_restarted = comm.all_gather %w2 on @dp : (tensor<512x4096xbf16>) -> !comm.future<tensor<4096x4096xbf16>>
  %w2_again = comm.wait %w2_restarted : !comm.future<tensor<4096x4096xbf16>>
  %dh_empty = tensor.empty() : tensor<8192x4096xbf16>
  %dh_zero = linalg.fill ins(%zero : bf16) outs(%dh_empty : tensor<8192x4096xbf16>) -> tensor<8192x4096xbf16>
  %dh = linalg.matmul indexing_maps = [#row_by_row, #column_transposed, #out]
      ins(%dy, %w2_again : tensor<8192x4096xbf16>, tensor<4096x4096xbf16>)
      outs(%dh_zero : tensor<8192x4096xbf16>) -> tensor<8192x4096xbf16>

  // Backward, layer 1: xT dh, averaged over the ranks and scattered.
  %dw1_empty = tensor.empty() : tensor<4096x4096xbf16>
  %dw1_zero = linalg.fill ins(%zero : bf16) outs(%dw1_empty : tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
  %dw1_full = linalg.matmul indexing_maps = [#row_transposed, #column, #out]
      ins(%x, %dh : tensor<8192x4096xbf16>, tensor<8192x4096xbf16>)
      outs(%dw1_zero : tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
  %dw1_started = comm.reduce_scatter avg %dw1_full on @dp : (tensor<4096x4096xbf16>) -> !comm.future<tensor<512x4096xbf16>>
  %dw1 = comm.wait %dw1_started : !comm.future<tensor<512x4096xbf16>>

  return %dw1, %dw2 : tensor<512x4096xbf16>, tensor<512x4096xbf16>
}

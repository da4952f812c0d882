// Every kind of computation that comm-calibrate measures, and two that it does not.
comm.group @dp #comm.iota<[1, 2]>
#row_by_row = affine_map<(m, n, k) -> (m, k)>
#column_transposed = affine_map<(m, n, k) -> (n, k)>
#out = affine_map<(m, n, k) -> (m, n)>

func.func @step(%x: tensor<32x16xf32>, %w: tensor<16x8xf32>, %v: tensor<8x16xf32>, %b: tensor<4x8x8xf32>,
                %shard: tensor<64xf32>)
    -> (tensor<32x8xf32>, tensor<32x8xf32>, tensor<4x8x8xf32>, tensor<80xf32>, tensor<128xf32>, tensor<64xf32>) {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<32x8xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<32x8xf32>) -> tensor<32x8xf32>
  %slice, %buffer = comm.fsdp.all_gather_copy_in %shard on @dp : (tensor<64xf32>) -> (tensor<64xf32>, tensor<128xf32>)
  %f = comm.all_gather %slice on @dp : (tensor<64xf32>) -> !comm.future<tensor<128xf32>>
  %p = linalg.matmul ins(%x, %w : tensor<32x16xf32>, tensor<16x8xf32>) outs(%init : tensor<32x8xf32>) -> tensor<32x8xf32>
  %q = linalg.matmul indexing_maps = [#row_by_row, #column_transposed, #out]
      ins(%x, %v : tensor<32x16xf32>, tensor<8x16xf32>) outs(%init : tensor<32x8xf32>) -> tensor<32x8xf32>
  %r = linalg.batch_matmul ins(%b, %b : tensor<4x8x8xf32>, tensor<4x8x8xf32>) outs(%b : tensor<4x8x8xf32>)
      -> tensor<4x8x8xf32>
  %n = comm.compute "aten.relu"(%p) : (tensor<32x8xf32>) -> tensor<32x8xf32>
  %o = comm.compute "my.attention"(%n) : (tensor<32x8xf32>) -> tensor<32x8xf32>
  %cat = comm.fsdp.chunk_cat %x, %shard chunks 8 : (tensor<32x16xf32>, tensor<64xf32>) -> tensor<576xf32>
  %small = tensor.extract_slice %cat[0] [80] [1] : tensor<576xf32> to tensor<80xf32>
  %full = comm.wait %f : !comm.future<tensor<128xf32>>
  %piece = comm.fsdp.split_with_sizes_copy %full sizes [32, 32] members [1] : (tensor<128xf32>) -> tensor<64xf32>
  return %o, %q, %r, %small, %full, %piece
      : tensor<32x8xf32>, tensor<32x8xf32>, tensor<4x8x8xf32>, tensor<80xf32>, tensor<128xf32>, tensor<64xf32>
}

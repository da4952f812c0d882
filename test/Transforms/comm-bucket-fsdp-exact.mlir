// RUN: comm-opt %s --comm-bucket="fsdp-exact" --remarks-filter=comm-bucket --verify-diagnostics --split-input-file -o /dev/null

// Tests PyTorch's own filter: the argument or one cast of it, the result or one cast of it.

comm.group @dp #comm.iota<[1, 4]>
// expected-remark @+1 {{CollectivesAfter=3, CollectivesBefore=4}}
func.func @gathers(%a: tensor<8xf16>, %b: tensor<8xf32>, %c: tensor<8xf32>, %d: tensor<2x4xf32>) -> (tensor<32xf16>, tensor<32xf16>, tensor<32xf16>, tensor<32xf16>) {
  // expected-remark @+1 {{2 collectives merged into one}}
  %f0 = comm.all_gather %a on @dp : (tensor<8xf16>) -> !comm.future<tensor<32xf16>>
  %w0 = comm.wait %f0 : !comm.future<tensor<32xf16>>
  %cb = arith.truncf %b : tensor<8xf32> to tensor<8xf16>
  %f1 = comm.all_gather %cb on @dp : (tensor<8xf16>) -> !comm.future<tensor<32xf16>>
  %w1 = comm.wait %f1 : !comm.future<tensor<32xf16>>
  %cc = arith.extf %c : tensor<8xf32> to tensor<8xf64>
  %cd = arith.truncf %cc : tensor<8xf64> to tensor<8xf16>
  // expected-remark @+1 {{LimitingFactor="it does not gather an argument of the function"}}
  %f2 = comm.all_gather %cd on @dp : (tensor<8xf16>) -> !comm.future<tensor<32xf16>>
  %w2 = comm.wait %f2 : !comm.future<tensor<32xf16>>
  %v = tensor.collapse_shape %d [[0, 1]] : tensor<2x4xf32> into tensor<8xf32>
  %cv = arith.truncf %v : tensor<8xf32> to tensor<8xf16>
  // expected-remark @+1 {{LimitingFactor="it does not gather an argument of the function"}}
  %f3 = comm.all_gather %cv on @dp : (tensor<8xf16>) -> !comm.future<tensor<32xf16>>
  %w3 = comm.wait %f3 : !comm.future<tensor<32xf16>>
  return %w0, %w1, %w2, %w3 : tensor<32xf16>, tensor<32xf16>, tensor<32xf16>, tensor<32xf16>
}

// -----

comm.group @dp #comm.iota<[1, 4]>
// expected-remark @+1 {{CollectivesAfter=3, CollectivesBefore=4}}
func.func @scatters(%a: tensor<16xf32>, %b: tensor<16xf32>, %c: tensor<16xf32>, %d: tensor<16xf32>) -> (tensor<4xf32>, tensor<4xf64>, tensor<4xf32>, tensor<2x2xf32>) {
  // expected-remark @+1 {{2 collectives merged into one}}
  %f0 = comm.reduce_scatter sum %a on @dp : (tensor<16xf32>) -> !comm.future<tensor<4xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<4xf32>>
  %f1 = comm.reduce_scatter sum %b on @dp : (tensor<16xf32>) -> !comm.future<tensor<4xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<4xf32>>
  %h1 = arith.extf %w1 : tensor<4xf32> to tensor<4xf64>
  // expected-remark @+1 {{LimitingFactor="its value reaches more than the results of the function"}}
  %f2 = comm.reduce_scatter sum %c on @dp : (tensor<16xf32>) -> !comm.future<tensor<4xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<4xf32>>
  %g2 = arith.extf %w2 : tensor<4xf32> to tensor<4xf64>
  %h2 = arith.truncf %g2 : tensor<4xf64> to tensor<4xf32>
  // expected-remark @+1 {{LimitingFactor="its value reaches more than the results of the function"}}
  %f3 = comm.reduce_scatter sum %d on @dp : (tensor<16xf32>) -> !comm.future<tensor<4xf32>>
  %w3 = comm.wait %f3 : !comm.future<tensor<4xf32>>
  %h3 = tensor.expand_shape %w3 [[0, 1]] output_shape [2, 2] : tensor<4xf32> into tensor<2x2xf32>
  return %w0, %h1, %h2, %h3 : tensor<4xf32>, tensor<4xf64>, tensor<4xf32>, tensor<2x2xf32>
}

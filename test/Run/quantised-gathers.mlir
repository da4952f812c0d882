// RUN: comm-opt %s --comm-quantise-gathers -o %t.mlir
// RUN: comm-run %t.mlir --print | FileCheck %s

comm.group @world #comm.iota<[1, 4]>

// Tests numbers of which the results follow from the format. Neighbours of 17, 19 and 21 are 16, 18, 20 and 22: ties take those with an even last
// bit. Those of 0.0029296875 and 0.0009765625 are multiples of 2^-9. The largest number of f32 would round to 2^128. A row is a block.
// CHECK: rank 0 result 0: [448, 16, 20, -20, 0.00390625, 0, -0, 0.001953125]
// CHECK: rank 0 result 1: [NaN, NaN]
// CHECK: rank 0 result 2: [3.19014719E+38, -1.70141183E+38]
// CHECK: rank 0 result 3: [0, 1]
// CHECK: rank 1 result 0: [448, 16, 20, -20, 0.00390625, 0, -0, 0.001953125]
func.func @main() -> (tensor<8xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4096x128xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<4096x128xf32>) -> tensor<4096x128xf32>
  %numbers = arith.constant dense<[[448.0, 17.0, 19.0, -21.0, 0.0029296875, 0.0009765625, -0.0, 0.00098]]> : tensor<1x8xf32>
  %infinite = arith.constant dense<[[1.0, 0x7f800000]]> : tensor<1x2xf32>
  %large = arith.constant dense<[[0x7f7fffff, -1.7e+38]]> : tensor<1x2xf32>
  %one = arith.constant dense<[[0.0, 1.0]]> : tensor<1x2xf32>
  %a = tensor.insert_slice %numbers into %zeros[0, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<4096x128xf32>
  %b = tensor.insert_slice %infinite into %a[1, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<4096x128xf32>
  %c = tensor.insert_slice %large into %b[2, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<4096x128xf32>
  %x = tensor.insert_slice %one into %c[3, 0] [1, 2] [1, 1] : tensor<1x2xf32> into tensor<4096x128xf32>
  %f = comm.all_gather %x on @world : (tensor<4096x128xf32>) -> !comm.future<tensor<16384x128xf32>>
  %w = comm.wait %f : !comm.future<tensor<16384x128xf32>>
  %0 = tensor.extract_slice %w[4096, 0] [1, 8] [1, 1] : tensor<16384x128xf32> to tensor<8xf32>
  %1 = tensor.extract_slice %w[4097, 126] [1, 2] [1, 1] : tensor<16384x128xf32> to tensor<2xf32>
  %2 = tensor.extract_slice %w[2, 0] [1, 2] [1, 1] : tensor<16384x128xf32> to tensor<2xf32>
  %3 = tensor.extract_slice %w[3, 0] [1, 2] [1, 1] : tensor<16384x128xf32> to tensor<2xf32>
  return %0, %1, %2, %3 : tensor<8xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
}

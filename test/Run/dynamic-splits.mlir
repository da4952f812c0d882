// Tests that two ranks exchange pieces of different sizes whose splits only the run time knows: row r of a matrix of counts
// is what rank r sends, and a scatter tells the rank. The results are checked by hand, and are the same on four ranks in two
// groups, over MPI, on every backend and after every pass.

// RUN: comm-run %s --print | FileCheck %s
// RUN: comm-opt %s --canonicalize --comm-realize-buffers --comm-schedule -o %t.passes.mlir
// RUN: comm-run %s --compare %t.passes.mlir
// RUN: comm-run %s --backend sim --compare %t.passes.mlir
// RUN: sed -e 's/\[1, 2\]>/[2, 2]>/' %s > %t.four.mlir
// RUN: comm-run %t.four.mlir --print | FileCheck %s --check-prefixes=CHECK,FOUR

comm.group @world #comm.iota<[1, 2]>

// CHECK: rank 0 result 0: [0, 10, 11]
// CHECK: rank 1 result 0: [1, 2, 3]
// FOUR: rank 2 result 0: [0, 10, 11]
// FOUR: rank 3 result 0: [1, 2, 3]
func.func @main() -> tensor<?xi64> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %counts = arith.constant dense<[[1, 3], [2, 0]]> : tensor<2x2xindex>
  %places = arith.constant dense<[0, 1]> : tensor<2xi64>
  %f0 = comm.scatter %places on @world root 0 : (tensor<2xi64>) -> !comm.future<tensor<1xi64>>
  %place = comm.wait %f0 : !comm.future<tensor<1xi64>>
  %number = tensor.extract %place[%zero] : tensor<1xi64>
  %r = arith.index_cast %number : i64 to index
  %s0 = tensor.extract %counts[%r, %zero] : tensor<2x2xindex>
  %s1 = tensor.extract %counts[%r, %one] : tensor<2x2xindex>
  %r0 = tensor.extract %counts[%zero, %r] : tensor<2x2xindex>
  %r1 = tensor.extract %counts[%one, %r] : tensor<2x2xindex>
  %rows = arith.addi %s0, %s1 : index
  %digits = arith.constant dense<[0, 1, 2, 3]> : tensor<4xi64>
  %ten = arith.constant dense<10> : tensor<1xi64>
  %tens = comm.compute "mul"(%place, %ten) : (tensor<1xi64>, tensor<1xi64>) -> tensor<1xi64>
  %numbers = comm.compute "add"(%digits, %tens) : (tensor<4xi64>, tensor<1xi64>) -> tensor<4xi64>
  %in = tensor.extract_slice %numbers[0] [%rows] [1] : tensor<4xi64> to tensor<?xi64>
  %f1 = comm.all_to_all %in on @world input_splits [%s0, %s1] output_splits [%r0, %r1]
      : (tensor<?xi64>) -> !comm.future<tensor<?xi64>>
  %out = comm.wait %f1 : !comm.future<tensor<?xi64>>
  return %out : tensor<?xi64>
}

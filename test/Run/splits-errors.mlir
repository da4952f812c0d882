// Tests that splits that are negative or do not add up to the rows of their buffer, and splits about which two ranks
// disagree, end the program with the numbers and the place; nothing outside of the buffers is read or written.

// RUN: not comm-run %s --ranks 2 --entry input_sum 2>&1 | FileCheck %s --check-prefix=INPUT
// RUN: not comm-run %s --ranks 2 --entry output_sum 2>&1 | FileCheck %s --check-prefix=OUTPUT
// RUN: not comm-run %s --ranks 2 --entry negative 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// RUN: not comm-run %s --ranks 2 --entry static --dynamic-size 3 2>&1 | FileCheck %s --check-prefix=STATIC
// RUN: not comm-run %s --ranks 2 --entry ranks 2>&1 | FileCheck %s --check-prefix=RANKS

comm.group @world #comm.iota<[1, 2]>

func.func @input_sum(%x: tensor<4xf32>) -> tensor<?xf32> {
  %four = arith.constant 4 : index
  // INPUT: expected splits that add up to 4 rows, got [4, 1]: all_to_all of {{.*}}f32 on @world ({{.*}}splits-errors.mlir:[[@LINE+1]]:
  %f = comm.all_to_all %x on @world input_splits [%four, 1] output_splits [%four, 1] : (tensor<4xf32>) -> !comm.future<tensor<?xf32>>
  %y = comm.wait %f : !comm.future<tensor<?xf32>>
  return %y : tensor<?xf32>
}

func.func @output_sum(%x: tensor<4xf32>) -> tensor<4xf32> {
  %two = arith.constant 2 : index
  // OUTPUT: expected splits that add up to 4 rows, got [2, 3]: all_to_all {{.*}}splits-errors.mlir:[[@LINE+1]]:
  %f = comm.all_to_all %x on @world input_splits [2, %two] output_splits [%two, 3] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %y = comm.wait %f : !comm.future<tensor<4xf32>>
  return %y : tensor<4xf32>
}

func.func @negative(%x: tensor<4xf32>) -> tensor<4xf32> {
  %minus = arith.constant -1 : index
  // NEGATIVE: expected splits that add up to 4 rows, got [5, -1]: all_to_all {{.*}}splits-errors.mlir:[[@LINE+1]]:
  %f = comm.all_to_all %x on @world input_splits [5, %minus] output_splits [2, 2] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %y = comm.wait %f : !comm.future<tensor<4xf32>>
  return %y : tensor<4xf32>
}

func.func @static(%x: tensor<?xf32>) -> tensor<4xf32> {
  // STATIC: expected splits that add up to 3 rows, got [2, 2]: all_to_all {{.*}}splits-errors.mlir:[[@LINE+1]]:
  %f = comm.all_to_all %x on @world input_splits [2, 2] output_splits [2, 2] : (tensor<?xf32>) -> !comm.future<tensor<4xf32>>
  %y = comm.wait %f : !comm.future<tensor<4xf32>>
  return %y : tensor<4xf32>
}

// Each sends 1 to the first and 3 to the second, and expects as much from them.
func.func @ranks(%x: tensor<4xf32>) -> tensor<4xf32> {
  // RANKS: mismatch: {{.*}}sends {{[13]}} elements to rank {{[01]}}, which expects {{[31]}}
  %f = comm.all_to_all %x on @world input_splits [1, 3] output_splits [1, 3] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %y = comm.wait %f : !comm.future<tensor<4xf32>>
  return %y : tensor<4xf32>
}

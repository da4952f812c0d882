// RUN: comm-opt %s --convert-scf-to-cf -o %t.mlir
// RUN: comm-run --ranks 2 %s --compare %t.mlir
// RUN: comm-opt %t.mlir --reorder-comm-overlap -o %t.scheduled.mlir
// RUN: comm-run --ranks 2 %s --compare %t.scheduled.mlir

// Tests that a loop of basic blocks on tensors gives what the loop of scf gives: a tensor that the loop passes on and that
// is written and returned afterwards, and one from outside that every iteration overwrites.
comm.group @world #comm.ranks<[[0, 1]]>

func.func @main() -> (tensor<4xi64>, tensor<4xi64>, tensor<4xi64>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %rank = comm.rank : index
  %a = tensor.generate {
  ^bb0(%i: index):
    %sum = arith.addi %i, %rank : index
    %element = arith.index_cast %sum : index to i64
    tensor.yield %element : i64
  } : tensor<4xi64>
  %zero = arith.constant dense<0> : tensor<4xi64>
  %passed, %total = scf.for %i = %c0 to %c3 step %c1 iter_args(%t = %a, %s = %zero) -> (tensor<4xi64>, tensor<4xi64>) {
    %doubled = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
        outs(%a : tensor<4xi64>) {
    ^bb0(%o: i64):
      %two = arith.addi %o, %o : i64
      linalg.yield %two : i64
    } -> tensor<4xi64>
    %start = comm.all_reduce sum %doubled on @world : (tensor<4xi64>) -> !comm.future<tensor<4xi64>>
    %done = comm.wait %start : !comm.future<tensor<4xi64>>
    %empty = tensor.empty() : tensor<4xi64>
    %more = linalg.add ins(%s, %done : tensor<4xi64>, tensor<4xi64>) outs(%empty : tensor<4xi64>) -> tensor<4xi64>
    scf.yield %a, %more : tensor<4xi64>, tensor<4xi64>
  }
  %written = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      outs(%passed : tensor<4xi64>) {
  ^bb0(%o: i64):
    %two = arith.addi %o, %o : i64
    linalg.yield %two : i64
  } -> tensor<4xi64>
  return %passed, %written, %total : tensor<4xi64>, tensor<4xi64>, tensor<4xi64>
}

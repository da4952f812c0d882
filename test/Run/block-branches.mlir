// RUN: comm-opt %s --convert-scf-to-cf -o %t.mlir
// RUN: comm-run --ranks 2 %s --compare %t.mlir
// RUN: comm-opt %t.mlir --canonicalize -o %t.canonical.mlir
// RUN: comm-run --ranks 2 %s --compare %t.canonical.mlir
// RUN: comm-opt %t.mlir --reorder-comm-overlap -o %t.scheduled.mlir
// RUN: comm-run --ranks 2 %s --compare %t.scheduled.mlir

// Tests that branches of basic blocks on tensors give what branches of scf give: what a branch passes on is written behind
// another branch, and read after that under the name that it had before. Behind canonicalization several edges lead from
// the switch to one block.
comm.group @world #comm.ranks<[[0, 1]]>

func.func @main() -> (tensor<4xi64>, tensor<4xi64>, tensor<4xi64>) {
  %c0 = arith.constant 0 : index
  %rank = comm.rank : index
  %a = tensor.generate {
  ^bb0(%i: index):
    %sum = arith.addi %i, %rank : index
    %element = arith.index_cast %sum : index to i64
    tensor.yield %element : i64
  } : tensor<4xi64>
  %start = comm.all_reduce sum %a on @world : (tensor<4xi64>) -> !comm.future<tensor<4xi64>>
  %b = comm.wait %start : !comm.future<tensor<4xi64>>
  %is_first = arith.cmpi eq, %rank, %c0 : index
  %chosen = scf.if %is_first -> (tensor<4xi64>) {
    scf.yield %a : tensor<4xi64>
  } else {
    scf.yield %b : tensor<4xi64>
  }
  %again = scf.if %is_first -> (tensor<4xi64>) {
    scf.yield %chosen : tensor<4xi64>
  } else {
    scf.yield %chosen : tensor<4xi64>
  }
  %squares = scf.if %is_first -> (tensor<4xi64>) {
    %product = linalg.mul ins(%again, %again : tensor<4xi64>, tensor<4xi64>) outs(%again : tensor<4xi64>) -> tensor<4xi64>
    scf.yield %product : tensor<4xi64>
  } else {
    %total = linalg.add ins(%again, %again : tensor<4xi64>, tensor<4xi64>) outs(%again : tensor<4xi64>) -> tensor<4xi64>
    scf.yield %total : tensor<4xi64>
  }
  %picked = scf.index_switch %rank -> tensor<4xi64>
  case 0 {
    scf.yield %a : tensor<4xi64>
  }
  default {
    scf.yield %b : tensor<4xi64>
  }
  return %chosen, %squares, %picked : tensor<4xi64>, tensor<4xi64>, tensor<4xi64>
}

// RUN: comm-opt %s > %t
// RUN: comm-opt %s --comm-raise | diff %t -
// RUN: comm-opt %s --comm-sink-waits | diff %t -
// RUN: comm-opt %s --comm-reorder-compute-for-overlap | diff %t -
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory | diff %t -
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="use-runtime-estimates=true memory-budget-ratio=10" | diff %t -
// RUN: comm-opt %s --comm-sink-waits-preserving-peak-memory="swap-with-collectives=true" | diff %t -
// RUN: comm-opt %s --comm-sink-waits-preserving-peak-memory="use-runtime-estimates=true" --mlir-disable-threading | diff %t -
// RUN: comm-opt %s --comm-order-collectives | diff %t -
// RUN: comm-opt %s --comm-order-fsdp | diff %t -
// RUN: comm-opt %s --comm-align-costs="profiles=h100-sxm,a100-sxm" | diff %t -

// Tests that a module in which nothing is to be gained is printed bit for bit as it was, whatever the pass.

comm.group @dp #comm.iota<[1, 4]>

func.func @hidden_already(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %q = comm.compute "free"(%x) {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> tensor<8xf32>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  return %q, %r : tensor<8xf32>, tensor<8xf32>
}

func.func @nothing_to_hide_behind(%x: tensor<8xf32>) -> tensor<8xf32> {
  %a = comm.compute "before"(%x) {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> tensor<8xf32>
  %f = comm.all_reduce sum %a on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  %b = comm.compute "after"(%r) {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> tensor<8xf32>
  return %b : tensor<8xf32>
}

func.func @no_collectives(%x: tensor<8xf32>) -> tensor<8xf32> {
  %a = comm.compute "aten.mm"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %a : tensor<8xf32>
}

func.func private @declared(tensor<8xf32>) -> tensor<8xf32>

func.func @in_a_loop(%x: tensor<8xf32>, %n: index) -> tensor<8xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %out = scf.for %i = %zero to %n step %one iter_args(%v = %x) -> tensor<8xf32> {
    %f = comm.all_reduce sum %v on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
    %r = comm.wait %f : !comm.future<tensor<8xf32>>
    scf.yield %r : tensor<8xf32>
  }
  return %out : tensor<8xf32>
}

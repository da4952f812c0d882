// RUN: comm-opt %s --comm-raise | FileCheck %s --check-prefixes=ALL,RAISE
// RUN: comm-opt %s --comm-sink-waits | FileCheck %s --check-prefixes=ALL,SINK
// RUN: comm-opt %s --comm-reorder-compute-for-overlap | FileCheck %s --check-prefixes=ALL,RAISE
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="use-runtime-estimates=true memory-budget-ratio=1" | FileCheck %s --check-prefixes=ALL,RAISE
// RUN: comm-opt %s --comm-sink-waits-preserving-peak-memory="use-runtime-estimates=true memory-budget-ratio=1" | FileCheck %s --check-prefixes=ALL,SINK
// RUN: comm-opt %s --comm-order-fsdp | FileCheck %s --check-prefixes=ALL,FSDP
// RUN: comm-opt %s --comm-order-collectives | FileCheck %s --check-prefixes=ALL,PIN
// RUN: comm-opt %s --comm-align-costs="profiles=h100-sxm" | FileCheck %s --check-prefixes=ALL,ALIGN
// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-reorder-preserving-peak-memory,comm-sink-waits-preserving-peak-memory table=false memory-budget-ratio=1" | FileCheck %s --check-prefixes=ALL,RAISE
// RUN: comm-opt %s --reorder-comm-overlap="bucketing=false table=false memory-budget-ratio=1" | FileCheck %s --check-prefixes=ALL,RAISE
// RUN: comm-opt %s --pass-pipeline="builtin.module(func.func(comm-raise))" | FileCheck %s --check-prefixes=ALL,RAISE

// Tests that every pass works on the blocks of loops as on a function's own, anchored at a module or at
// a function.

comm.group @dp #comm.iota<[1, 4]>

// ALL-LABEL: func @loop_body
// ALL: scf.for
// RAISE: comm.all_gather
// RAISE: compute "aten.mm"
// SINK: comm.all_gather
// SINK-NEXT: compute "behind"
// SINK: comm.wait
// FSDP: comm.fsdp.all_gather_copy_in
// FSDP-NEXT: comm.all_gather
// FSDP-NEXT: compute "between"
// PIN-COUNT-2: comm.pinned
// ALIGN: compute "aten.mm"{{.*}}#comm.cost<time = 1000>
func.func @loop_body(%w: tensor<8xf32>, %x: tensor<8xf32>, %n: index) -> (tensor<8xf32>, tensor<32xf32>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %z = comm.compute "zeros"() : () -> tensor<32xf32>
  %out:2 = scf.for %i = %zero to %n step %one iter_args(%v = %x, %u = %z) -> (tensor<8xf32>, tensor<32xf32>) {
    %a = comm.compute "aten.mm"(%v) {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> tensor<8xf32>
    %f = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
    %r = comm.wait %f : !comm.future<tensor<32xf32>>
    %b = comm.compute "behind"(%a) {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> tensor<8xf32>
    %s, %g = comm.fsdp.all_gather_copy_in %w on @dp {comm.cost = #comm.cost<time = 10>} : (tensor<8xf32>) -> (tensor<8xf32>, tensor<32xf32>)
    %c = comm.compute "between"(%b) {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> tensor<8xf32>
    %h = comm.all_gather %s into %g on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
    %t = comm.wait %h : !comm.future<tensor<32xf32>>
    %p = comm.fsdp.split_with_sizes_copy %t sizes [8] {comm.cost = #comm.cost<time = 10>} : (tensor<32xf32>) -> tensor<32xf32>
    %d = comm.compute "sum"(%r, %p, %u) {comm.cost = #comm.cost<time = 10>} : (tensor<32xf32>, tensor<32xf32>, tensor<32xf32>) -> tensor<32xf32>
    scf.yield %c, %d : tensor<8xf32>, tensor<32xf32>
  }
  return %out#0, %out#1 : tensor<8xf32>, tensor<32xf32>
}

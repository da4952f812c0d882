// RUN: comm-opt %s --split-input-file --comm-pipeline-loops=memory-budget-ratio=4 --remarks-filter=comm-pipeline-loops -o %t.mlir 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: FileCheck %s < %t.mlir
// RUN: comm-opt %s --split-input-file --comm-pipeline-loops=force | FileCheck %s --check-prefix=FORCE
// RUN: comm-opt %s --split-input-file --comm-pipeline-loops --remarks-filter=comm-pipeline-loops -o /dev/null 2>&1 | FileCheck %s --check-prefix=TIGHT
// RUN: comm-opt %s --split-input-file --comm-pipeline-loops="memory-budget-ratio=4 collective-order=group" --remarks-filter=comm-pipeline-loops -o /dev/null 2>&1 | FileCheck %s --check-prefix=PROGRAM
// RUN: comm-opt %s --split-input-file --reorder-comm-overlap="loops=pipeline memory-budget-ratio=4 bucketing=false" | FileCheck %s
// RUN: comm-opt %s --split-input-file --reorder-comm-overlap="loops=keep memory-budget-ratio=4" | FileCheck %s --check-prefix=KEEP
// RUN: comm-opt %s --split-input-file --comm-pipeline-loops="memory-budget-ratio=4 effort=0 bucketing=false" | FileCheck %s

// Tests that a gather runs one iteration ahead if there is memory for a second layer. An iteration then takes what its
// computation takes.
// REMARK: [Passed] loop | Category:comm-pipeline-loops | Ahead=1, Behind=0, IterationNsAfter=5000, IterationNsBefore=9000, IterationNsBound=5000, {{.*}}MakespanNsAfter=24000, MakespanNsBefore=36000, {{.*}}Remark="pipelined: collectives ahead; 24.0 us, 36.0 us without; an iteration takes 5.00 us, 9.00 us without, at least 5.00 us in any pipeline
// TIGHT: [Missed] loop {{.*}}LimitingFactor="the memory limit"{{.*}}not pipelined: the peak would exceed the limit of 1.25 KiB by
// PROGRAM: [Missed] loop {{.*}}not pipelined: collectives have to keep their order
// CHECK-LABEL: func.func @ahead
// CHECK: comm.all_gather
// CHECK: comm.wait
// CHECK: scf.for %[[I:.*]] = %{{.*}} to %{{.*}} step %{{.*}} iter_args(%{{.*}} = %{{.*}}, %[[LAYER:.*]] = %{{.*}})
// CHECK: %[[NEXT:.*]] = arith.addi %[[I]], %{{.*}} : index
// CHECK: tensor.extract_slice %{{.*}}[%[[NEXT]], 0]
// CHECK: comm.all_gather
// CHECK: comm.compute "layer"(%{{.*}}, %[[LAYER]])
// CHECK: comm.wait
// CHECK: scf.yield
// CHECK: comm.compute "layer"
// CHECK: return
// KEEP-LABEL: func.func @ahead
// KEEP: scf.for
// KEEP-NEXT: tensor.extract_slice
// KEEP-NEXT: comm.all_gather
comm.group @dp #comm.iota<[1, 4]>
func.func @ahead(%params: tensor<4x64xf32>, %x: tensor<64xf32>) -> tensor<64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %result = scf.for %i = %c0 to %c4 step %c1 iter_args(%h = %x) -> (tensor<64xf32>) {
    %shard = tensor.extract_slice %params[%i, 0] [1, 64] [1, 1] : tensor<4x64xf32> to tensor<64xf32>
    %f = comm.all_gather %shard on @dp {comm.cost = #comm.cost<time = 4000>} : (tensor<64xf32>) -> !comm.future<tensor<256xf32>>
    %w = comm.wait %f : !comm.future<tensor<256xf32>>
    %y = comm.compute "layer"(%h, %w) {comm.cost = #comm.cost<time = 5000>} : (tensor<64xf32>, tensor<256xf32>) -> tensor<64xf32>
    scf.yield %y : tensor<64xf32>
  }
  return %result : tensor<64xf32>
}

// -----

// Tests that a reduction that is collected runs one iteration behind.
// REMARK: [Passed] loop {{.*}}Ahead=0, Behind=1, {{.*}}pipelined: collectives behind
// CHECK-LABEL: func.func @behind
// CHECK: %[[FIRST:.*]] = comm.compute "gradient"
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %[[GRADIENT:.*]] = %[[FIRST]])
// CHECK: %[[F:.*]] = comm.reduce_scatter sum %[[GRADIENT]]
// CHECK: comm.compute "gradient"
// CHECK: %[[PIECE:.*]] = comm.wait %[[F]]
// CHECK: tensor.insert_slice %[[PIECE]]
// CHECK: scf.yield
// CHECK: comm.reduce_scatter
comm.group @dp #comm.iota<[1, 4]>
func.func @behind(%x: tensor<256xf32>, %zero: tensor<4x64xf32>) -> (tensor<256xf32>, tensor<4x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %result:2 = scf.for %i = %c0 to %c4 step %c1 iter_args(%h = %x, %all = %zero) -> (tensor<256xf32>, tensor<4x64xf32>) {
    %g = comm.compute "gradient"(%h) {comm.cost = #comm.cost<time = 5000>} : (tensor<256xf32>) -> tensor<256xf32>
    %f = comm.reduce_scatter sum %g on @dp {comm.cost = #comm.cost<time = 4000>} : (tensor<256xf32>) -> !comm.future<tensor<64xf32>>
    %piece = comm.wait %f : !comm.future<tensor<64xf32>>
    %more = tensor.insert_slice %piece into %all[%i, 0] [1, 64] [1, 1] : tensor<64xf32> into tensor<4x64xf32>
    scf.yield %g, %more : tensor<256xf32>, tensor<4x64xf32>
  }
  return %result#0, %result#1 : tensor<256xf32>, tensor<4x64xf32>
}

// -----

// Tests that a loop whose number of iterations is unknown, or smaller than that of the stages, stays as it is.
// REMARK: [Missed] loop {{.*}}not pipelined: its number of iterations is not known
// REMARK: [Missed] loop {{.*}}not pipelined: it has 1 iterations, fewer than the 2 stages
// REMARK: [Missed] loop {{.*}}not pipelined: it has 0 iterations, fewer than the 2 stages
// FORCE-LABEL: func.func @trips
// FORCE-COUNT-3: scf.for {{.*}} -> (tensor<64xf32>) {
comm.group @dp #comm.iota<[1, 4]>
func.func @trips(%params: tensor<4x64xf32>, %x: tensor<64xf32>, %n: index) -> tensor<64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %unknown = scf.for %i = %c0 to %n step %c1 iter_args(%h = %x) -> (tensor<64xf32>) {
    %shard = tensor.extract_slice %params[%i, 0] [1, 64] [1, 1] : tensor<4x64xf32> to tensor<64xf32>
    %f = comm.all_gather %shard on @dp : (tensor<64xf32>) -> !comm.future<tensor<256xf32>>
    %w = comm.wait %f : !comm.future<tensor<256xf32>>
    %y = comm.compute "layer"(%h, %w) {comm.cost = #comm.cost<time = 5000>} : (tensor<64xf32>, tensor<256xf32>) -> tensor<64xf32>
    scf.yield %y : tensor<64xf32>
  }
  %one = scf.for %i = %c0 to %c1 step %c1 iter_args(%h = %unknown) -> (tensor<64xf32>) {
    %shard = tensor.extract_slice %params[%i, 0] [1, 64] [1, 1] : tensor<4x64xf32> to tensor<64xf32>
    %f = comm.all_gather %shard on @dp : (tensor<64xf32>) -> !comm.future<tensor<256xf32>>
    %w = comm.wait %f : !comm.future<tensor<256xf32>>
    %y = comm.compute "layer"(%h, %w) {comm.cost = #comm.cost<time = 5000>} : (tensor<64xf32>, tensor<256xf32>) -> tensor<64xf32>
    scf.yield %y : tensor<64xf32>
  }
  %none = scf.for %i = %c1 to %c1 step %c1 iter_args(%h = %one) -> (tensor<64xf32>) {
    %shard = tensor.extract_slice %params[%i, 0] [1, 64] [1, 1] : tensor<4x64xf32> to tensor<64xf32>
    %f = comm.all_gather %shard on @dp : (tensor<64xf32>) -> !comm.future<tensor<256xf32>>
    %w = comm.wait %f : !comm.future<tensor<256xf32>>
    %y = comm.compute "layer"(%h, %w) {comm.cost = #comm.cost<time = 5000>} : (tensor<64xf32>, tensor<256xf32>) -> tensor<64xf32>
    scf.yield %y : tensor<64xf32>
  }
  return %none : tensor<64xf32>
}

// -----

// Tests that a loop behind a pipeline is looked at, although the pipeline has copies of the loop inside of it, and that
// each loop is looked at once.
// REMARK: [Missed] loop {{.*}}not pipelined: each collective needs what the iteration before computes
// REMARK: [Passed] loop {{.*}}pipelined: collectives ahead
// REMARK: [Passed] loop {{.*}}pipelined: collectives ahead
// REMARK-NOT: loop | Category:comm-pipeline-loops
// CHECK-LABEL: func.func @copies
// CHECK-NOT: commsched_loop_number
// FORCE-LABEL: func.func @copies
// FORCE-NOT: commsched_loop_number
comm.group @dp #comm.iota<[1, 4]>
func.func @copies(%params: tensor<4x64xf32>, %x: tensor<64xf32>) -> tensor<64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %first = scf.for %i = %c0 to %c4 step %c1 iter_args(%h = %x) -> (tensor<64xf32>) {
    %shard = tensor.extract_slice %params[%i, 0] [1, 64] [1, 1] : tensor<4x64xf32> to tensor<64xf32>
    %f = comm.all_gather %shard on @dp {comm.cost = #comm.cost<time = 4000>} : (tensor<64xf32>) -> !comm.future<tensor<256xf32>>
    %w = comm.wait %f : !comm.future<tensor<256xf32>>
    %inner = scf.for %j = %c0 to %c4 step %c1 iter_args(%k = %h) -> (tensor<64xf32>) {
      %g = comm.all_reduce sum %k on @dp {comm.cost = #comm.cost<time = 1000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
      %sum = comm.wait %g : !comm.future<tensor<64xf32>>
      %z = comm.compute "part"(%sum, %w) {comm.cost = #comm.cost<time = 5000>} : (tensor<64xf32>, tensor<256xf32>) -> tensor<64xf32>
      scf.yield %z : tensor<64xf32>
    }
    %y = comm.compute "layer"(%inner, %w) {comm.cost = #comm.cost<time = 5000>} : (tensor<64xf32>, tensor<256xf32>) -> tensor<64xf32>
    scf.yield %y : tensor<64xf32>
  }
  %second = scf.for %i = %c0 to %c4 step %c1 iter_args(%h = %first) -> (tensor<64xf32>) {
    %shard = tensor.extract_slice %params[%i, 0] [1, 64] [1, 1] : tensor<4x64xf32> to tensor<64xf32>
    %f = comm.all_gather %shard on @dp {comm.cost = #comm.cost<time = 4000>} : (tensor<64xf32>) -> !comm.future<tensor<256xf32>>
    %w = comm.wait %f : !comm.future<tensor<256xf32>>
    %y = comm.compute "layer"(%h, %w) {comm.cost = #comm.cost<time = 5000>} : (tensor<64xf32>, tensor<256xf32>) -> tensor<64xf32>
    scf.yield %y : tensor<64xf32>
  }
  return %second : tensor<64xf32>
}

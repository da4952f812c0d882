// Tests which collectives of a loop move to another iteration in a module that sends or receives: those for which no start gets
// behind a wait that it was in front of. A rank may wait there for a message from a rank that waits for the start.

// RUN: comm-opt %s --split-input-file --comm-pipeline-loops=memory-budget-ratio=4 --remarks-filter=comm-pipeline-loops -o /dev/null 2>&1 | FileCheck %s
// RUN: comm-opt %s --split-input-file --comm-pipeline-loops=force | FileCheck %s --check-prefix=FORCE

// Tests a reduction in front of a receive, which goes with it. Rank 0 sends in an iteration what rank 1 receives in the one
// before. If the reduction ran one iteration behind, rank 0 could wait for it in front of its send, and rank 1 start it behind
// its receive.
// CHECK: [Missed] loop {{.*}}not pipelined: each collective needs what the iteration before computes, and its result is read in the same iteration
// FORCE-LABEL: func.func @reduced_before_receive
// FORCE-NOT: comm.all_reduce
// FORCE: scf.for
comm.group @dp #comm.ranks<[[0, 1]]>
func.func @reduced_before_receive(%rank: tensor<1xi64>, %xs: tensor<4x64xf32>) -> tensor<64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %r = tensor.extract %rank[%c0] : tensor<1xi64>
  %i = arith.index_cast %r : i64 to index
  %isFirst = arith.cmpi eq, %i, %c0 : index
  %isSecond = arith.cmpi eq, %i, %c1 : index
  %zero = comm.compute "zero"() : () -> tensor<64xf32>
  %sum = scf.for %n = %c0 to %c4 step %c1 iter_args(%acc = %zero) -> tensor<64xf32> {
    %x = tensor.extract_slice %xs[%n, 0] [1, 64] [1, 1] : tensor<4x64xf32> to tensor<64xf32>
    %later = arith.cmpi sge, %n, %c1 : index
    %sends = arith.andi %isFirst, %later : i1
    scf.if %sends {
      %f = comm.send %x on @dp peer 1 : (tensor<64xf32>) -> !comm.future<>
      comm.wait %f : !comm.future<>
    }
    %p = comm.compute "product"(%x) {comm.cost = #comm.cost<time = 100000>} : (tensor<64xf32>) -> tensor<64xf32>
    %g = comm.all_reduce sum %p on @dp {comm.cost = #comm.cost<time = 100000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
    %w = comm.wait %g : !comm.future<tensor<64xf32>>
    %next = comm.compute "add"(%acc, %w) : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %earlier = arith.cmpi slt, %n, %c3 : index
    %receives = arith.andi %isSecond, %earlier : i1
    scf.if %receives {
      %f = comm.recv on @dp peer 0 : () -> !comm.future<tensor<64xf32>>
      %v = comm.wait %f : !comm.future<tensor<64xf32>>
      comm.compute "use"(%v) : (tensor<64xf32>) -> ()
    }
    scf.yield %next : tensor<64xf32>
  }
  return %sum : tensor<64xf32>
}

// -----

// Tests that a gather at the head of the body runs ahead beside messages at its end: its wait has no start of its iteration in
// front of it.
// CHECK: [Passed] loop {{.*}}Ahead=1, Behind=0,{{.*}}pipelined: collectives ahead;
// FORCE-LABEL: func.func @gathered_at_head
// FORCE: comm.all_gather
// FORCE: scf.for
// FORCE: comm.compute "layer"
// FORCE: comm.send
// The gather for the next iteration stands behind what is left of this one.
// FORCE: comm.all_gather
comm.group @dp #comm.ranks<[[0, 1]]>
comm.group @pp #comm.ranks<[[0, 1]]>
func.func @gathered_at_head(%params: tensor<4x64xf32>, %h: tensor<128xf32>) -> tensor<128xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %result = scf.for %n = %c0 to %c4 step %c1 iter_args(%x = %h) -> tensor<128xf32> {
    %p = tensor.extract_slice %params[%n, 0] [1, 64] [1, 1] : tensor<4x64xf32> to tensor<64xf32>
    %f = comm.all_gather %p on @dp {comm.cost = #comm.cost<time = 100000>} : (tensor<64xf32>) -> !comm.future<tensor<128xf32>>
    %w = comm.wait %f : !comm.future<tensor<128xf32>>
    %y = comm.compute "layer"(%x, %w) {comm.cost = #comm.cost<time = 100000>}
        : (tensor<128xf32>, tensor<128xf32>) -> tensor<128xf32>
    %s = comm.send %y on @pp peer 1 : (tensor<128xf32>) -> !comm.future<>
    %v = comm.recv on @pp peer 0 : () -> !comm.future<tensor<128xf32>>
    comm.wait %s : !comm.future<>
    %z = comm.wait %v : !comm.future<tensor<128xf32>>
    scf.yield %z : tensor<128xf32>
  }
  return %result : tensor<128xf32>
}

// -----

// Tests a gather behind the start of a reduction, in a loop without messages beside messages: its wait would get in front of that
// start, and a rank that has not come to the loop could be kept from it by a message.
// CHECK: [Missed] loop {{.*}}not pipelined: each collective needs what the iteration before computes, and its result is read in the same iteration
// FORCE-LABEL: func.func @gathered_behind_start
// FORCE-NOT: comm.all_gather
// FORCE: scf.for
comm.group @dp #comm.ranks<[[0, 1]]>
comm.group @tp #comm.ranks<[[0], [1]]>
func.func @gathered_behind_start(%params: tensor<4x64xf32>, %h: tensor<128xf32>) -> (tensor<128xf32>, tensor<128xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %s = comm.send %h on @dp peer 1 : (tensor<128xf32>) -> !comm.future<>
  %v = comm.recv on @dp peer 0 : () -> !comm.future<tensor<128xf32>>
  comm.wait %s : !comm.future<>
  %other = comm.wait %v : !comm.future<tensor<128xf32>>
  %result = scf.for %n = %c0 to %c4 step %c1 iter_args(%x = %h) -> tensor<128xf32> {
    %r = comm.all_reduce sum %x on @tp {comm.cost = #comm.cost<time = 100000>} : (tensor<128xf32>) -> !comm.future<tensor<128xf32>>
    %p = tensor.extract_slice %params[%n, 0] [1, 64] [1, 1] : tensor<4x64xf32> to tensor<64xf32>
    %f = comm.all_gather %p on @dp {comm.cost = #comm.cost<time = 100000>} : (tensor<64xf32>) -> !comm.future<tensor<128xf32>>
    %w = comm.wait %f : !comm.future<tensor<128xf32>>
    %z = comm.wait %r : !comm.future<tensor<128xf32>>
    %y = comm.compute "layer"(%z, %w) {comm.cost = #comm.cost<time = 100000>}
        : (tensor<128xf32>, tensor<128xf32>) -> tensor<128xf32>
    scf.yield %y : tensor<128xf32>
  }
  return %result, %other : tensor<128xf32>, tensor<128xf32>
}

// -----

// Tests that a gather runs ahead or a reduction behind, and not both: the reduction of an iteration would begin behind the wait
// for the gather of the next one.
// CHECK: [Passed] loop {{.*}}pipelined: collectives {{ahead|behind}};
// FORCE-LABEL: func.func @one_of_two
// FORCE: comm.all_gather
// FORCE: scf.for
// FORCE: comm.reduce_scatter
// FORCE: comm.all_gather
comm.group @dp #comm.ranks<[[0, 1]]>
func.func @one_of_two(%params: tensor<4x64xf32>, %h: tensor<128xf32>) -> (tensor<64xf32>, tensor<128xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %s = comm.send %h on @dp peer 1 : (tensor<128xf32>) -> !comm.future<>
  %v = comm.recv on @dp peer 0 : () -> !comm.future<tensor<128xf32>>
  comm.wait %s : !comm.future<>
  %other = comm.wait %v : !comm.future<tensor<128xf32>>
  %zero = comm.compute "zero"() : () -> tensor<64xf32>
  %result:2 = scf.for %n = %c0 to %c4 step %c1 iter_args(%x = %h, %sum = %zero) -> (tensor<128xf32>, tensor<64xf32>) {
    %p = tensor.extract_slice %params[%n, 0] [1, 64] [1, 1] : tensor<4x64xf32> to tensor<64xf32>
    %f = comm.all_gather %p on @dp {comm.cost = #comm.cost<time = 100000>} : (tensor<64xf32>) -> !comm.future<tensor<128xf32>>
    %w = comm.wait %f : !comm.future<tensor<128xf32>>
    %y = comm.compute "layer"(%x, %w) {comm.cost = #comm.cost<time = 200000>}
        : (tensor<128xf32>, tensor<128xf32>) -> tensor<128xf32>
    %g = comm.reduce_scatter sum %y on @dp {comm.cost = #comm.cost<time = 50000>} : (tensor<128xf32>) -> !comm.future<tensor<64xf32>>
    %r = comm.wait %g : !comm.future<tensor<64xf32>>
    %next = comm.compute "add"(%sum, %r) : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    scf.yield %y, %next : tensor<128xf32>, tensor<64xf32>
  }
  return %result#1, %other : tensor<64xf32>, tensor<128xf32>
}

// Tests that messages keep starts in front of waits in the blocks of other regions and functions, too. Rank 0 is in the loop
// when rank 1 waits for a message that rank 2 sends behind its loop. If rank 0 waited for its sum with rank 1 before it
// starts the gather that rank 2 waits for, all would wait for ever.

// RUN: comm-opt %s --split-input-file --verify-diagnostics --comm-schedule=memory-limit-bytes=40960 | FileCheck %s
// RUN: not comm-opt %s --split-input-file --comm-pipeline-loops=memory-limit-bytes=40960 2>&1 | FileCheck %s --check-prefix=LOOPS

comm.group @ab #comm.ranks<[[0, 1], [2, 3]]>
comm.group @ac #comm.ranks<[[0, 2], [1, 3]]>
comm.group @bc #comm.ranks<[[1, 2], [0, 3]]>

func.func @beside_messages(%x: tensor<1024xf32>, %is_first: i1, %is_second: i1) -> tensor<1024xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  scf.if %is_first {
    %f = comm.recv on @bc peer 1 : () -> !comm.future<tensor<1024xf32>>
    %w = comm.wait %f : !comm.future<tensor<1024xf32>>
  }
  // The gather has to be in flight while the large tensor is there.
  // expected-error @+1 {{cannot reduce peak memory to the limit of 40.0 KiB}}
  %out = scf.for %n = %c0 to %c2 step %c1 iter_args(%h = %x) -> tensor<1024xf32> {
    %sum = comm.all_reduce sum %h on @ab : (tensor<1024xf32>) -> !comm.future<tensor<1024xf32>>
    %gather = comm.all_gather %h on @ac dim 0 : (tensor<1024xf32>) -> !comm.future<tensor<2048xf32>>
    %s = comm.wait %sum : !comm.future<tensor<1024xf32>>
    %large = comm.compute "expand"(%s) : (tensor<1024xf32>) -> tensor<8x1024xf32>
    %small = comm.compute "shrink"(%large) : (tensor<8x1024xf32>) -> tensor<1024xf32>
    %g = comm.wait %gather : !comm.future<tensor<2048xf32>>
    %next = comm.compute "join"(%small, %g) : (tensor<1024xf32>, tensor<2048xf32>) -> tensor<1024xf32>
    scf.yield %next : tensor<1024xf32>
  }
  scf.if %is_second {
    %f = comm.send %out on @bc peer 0 : (tensor<1024xf32>) -> !comm.future<>
    comm.wait %f : !comm.future<>
  }
  return %out : tensor<1024xf32>
}

// -----

comm.group @ab #comm.ranks<[[0, 1], [2, 3]]>
comm.group @ac #comm.ranks<[[0, 2], [1, 3]]>

// Tests that a program without messages keeps the freedom: the gather starts when the large tensor is there.
// CHECK-LABEL: @without_messages
// LOOPS: error: comm-pipeline-loops: the limit on memory is below the least peak that was found
// LOOPS: func @without_messages
func.func @without_messages(%x: tensor<1024xf32>) -> tensor<1024xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  // CHECK: comm.all_reduce
  // CHECK: comm.wait
  // CHECK: comm.all_gather
  %out = scf.for %n = %c0 to %c2 step %c1 iter_args(%h = %x) -> tensor<1024xf32> {
    %sum = comm.all_reduce sum %h on @ab : (tensor<1024xf32>) -> !comm.future<tensor<1024xf32>>
    %gather = comm.all_gather %h on @ac dim 0 : (tensor<1024xf32>) -> !comm.future<tensor<2048xf32>>
    %s = comm.wait %sum : !comm.future<tensor<1024xf32>>
    %large = comm.compute "expand"(%s) : (tensor<1024xf32>) -> tensor<8x1024xf32>
    %small = comm.compute "shrink"(%large) : (tensor<8x1024xf32>) -> tensor<1024xf32>
    %g = comm.wait %gather : !comm.future<tensor<2048xf32>>
    %next = comm.compute "join"(%small, %g) : (tensor<1024xf32>, tensor<2048xf32>) -> tensor<1024xf32>
    scf.yield %next : tensor<1024xf32>
  }
  return %out : tensor<1024xf32>
}

// Tests that no pass moves a message past one in a region: messages of one peer are told apart by their order alone.

// RUN: comm-run %s --print | FileCheck %s
// RUN: %python -B %S/every_pass.py comm-opt comm-run %s | FileCheck %s --check-prefix=EQUAL
// RUN: comm-opt %s --comm-schedule=collective-order=program -o %t.program.mlir
// RUN: comm-opt %s --comm-schedule=collective-order=group -o %t.group.mlir
// RUN: comm-run %s --compare %t.program.mlir --compare %t.group.mlir | FileCheck %s --check-prefix=EQUAL
// EQUAL: equal, bit for bit, on 4 ranks

comm.group @pairs #comm.ranks<[[0, 1], [2, 3]]>

// CHECK: rank 0 result 0: [4]
// CHECK: rank 0 result 1: [9]
func.func @main() -> (tensor<1xi32>, tensor<1xi32>) {
  %four = arith.constant dense<4> : tensor<1xi32>
  %nine = arith.constant dense<9> : tensor<1xi32>
  %lo = arith.constant 0 : index
  %one = arith.constant 1 : index
  %s0 = comm.send %four on @pairs peer 0 {comm.cost = #comm.cost<time = 100>} : (tensor<1xi32>) -> !comm.future<>
  %s1 = comm.send %four on @pairs peer 1 {comm.cost = #comm.cost<time = 100>} : (tensor<1xi32>) -> !comm.future<>
  %s2 = comm.send %nine on @pairs peer 0 {comm.cost = #comm.cost<time = 100>} : (tensor<1xi32>) -> !comm.future<>
  %s3 = comm.send %nine on @pairs peer 1 {comm.cost = #comm.cost<time = 100>} : (tensor<1xi32>) -> !comm.future<>
  %q1 = comm.recv on @pairs peer 1 {comm.cost = #comm.cost<time = 100>} : () -> !comm.future<tensor<1xi32>>
  %q3 = comm.recv on @pairs peer 1 {comm.cost = #comm.cost<time = 100>} : () -> !comm.future<tensor<1xi32>>
  // The loop of one iteration receives the first message of peer 0; the operation behind it receives the second one.
  %a = scf.for %i = %lo to %one step %one iter_args(%x = %nine) -> tensor<1xi32> {
    %r = comm.recv on @pairs peer 0 {comm.cost = #comm.cost<time = 40000>} : () -> !comm.future<tensor<1xi32>>
    %got = comm.wait %r : !comm.future<tensor<1xi32>>
    scf.yield %got : tensor<1xi32>
  }
  %r2 = comm.recv on @pairs peer 0 {comm.cost = #comm.cost<time = 50000>} : () -> !comm.future<tensor<1xi32>>
  %b = comm.wait %r2 : !comm.future<tensor<1xi32>>
  %u1 = comm.wait %q1 : !comm.future<tensor<1xi32>>
  %u3 = comm.wait %q3 : !comm.future<tensor<1xi32>>
  comm.wait %s0 : !comm.future<>
  comm.wait %s1 : !comm.future<>
  comm.wait %s2 : !comm.future<>
  comm.wait %s3 : !comm.future<>
  return %a, %b : tensor<1xi32>, tensor<1xi32>
}

// Tests that a program has no bound if a collective on another stream passes a branch: an edge orders only how the two are
// issued, and the path through it is longer than the program.

// RUN: comm-opt %s --comm-report=%t.json -o /dev/null 2>&1 | FileCheck %s
// CHECK-NOT: contradicts
// CHECK: main:
// CHECK: makespan
// CHECK: lower bound {{ *}}none: operations on several streams pass each other

comm.group @world #comm.iota<[1, 16]>
comm.group @pairs #comm.iota<[8, 2]>
func.func @main(%arg0: tensor<1xi64>, %arg1: tensor<6x2xi64>) {
  %0 = comm.record on 0 : !comm.event
  %c0 = arith.constant 0 : index
  %c7_i64 = arith.constant 7 : i64
  %extracted = tensor.extract %arg0[%c0] : tensor<1xi64>
  %1 = arith.shrui %c7_i64, %extracted : i64
  %2 = arith.trunci %1 : i64 to i1
  %3 = scf.if %2 -> (tensor<6x2xi64>) {
    %9 = comm.record on 0 : !comm.event
    comm.await_event %9 on 3 : !comm.event
    %10 = comm.send %arg1 on @pairs peer 1 tag 1 {comm.stream = 3 : i64} : (tensor<6x2xi64>) -> !comm.future<>
    comm.wait %10 : !comm.future<>
    scf.yield %arg1 : tensor<6x2xi64>
  } else {
    %9 = comm.record on 0 : !comm.event
    comm.await_event %9 on 3 : !comm.event
    %10 = comm.recv on @pairs peer 0 tag 1 {comm.stream = 3 : i64} : () -> !comm.future<tensor<6x2xi64>>
    %11 = comm.wait %10 : !comm.future<tensor<6x2xi64>>
    scf.yield %11 : tensor<6x2xi64>
  }
  %cst = arith.constant dense<4> : tensor<1xi64>
  comm.await_event %0 on 1 : !comm.event
  %4 = comm.all_reduce max %cst on @world {comm.stream = 1 : i64} : (tensor<1xi64>) -> !comm.future<tensor<1xi64>>
  %5 = comm.wait %4 : !comm.future<tensor<1xi64>>
  %extracted_0 = tensor.extract %5[%c0] : tensor<1xi64>
  %6 = arith.addi %extracted_0, %extracted_0 : i64
  %c2_i64 = arith.constant 2 : i64
  %7 = arith.remui %6, %c2_i64 : i64
  %8 = arith.index_cast %7 : i64 to index
  return
}

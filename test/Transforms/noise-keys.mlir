// Tests that durations follow the operation and not its place: two orders of the same operations, in two functions, meet
// the same durations. A chain of gathers takes the sum of its durations in any order.

// RUN: comm-opt %s --comm-report="scenarios=16 table=false report-file=%t.json" -o /dev/null
// RUN: FileCheck %s --input-file=%t.json

// CHECK: "mean_ns": {
// CHECK-NEXT: "after": [[#MEAN:]],
// CHECK: "p95_ns": {
// CHECK-NEXT: "after": [[#Q95:]],
// CHECK: "mean_ns": {
// CHECK-NEXT: "after": [[#MEAN]],
// CHECK: "p95_ns": {
// CHECK-NEXT: "after": [[#Q95]],

comm.group @dp #comm.iota<[1, 8]>

func.func @first(%a: tensor<8xf32>, %b: tensor<8xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %0 = comm.all_gather %a on @dp {comm.cost = #comm.cost<time = 700000>} : (tensor<8xf32>) -> !comm.future<tensor<64xf32>> loc("gather_a")
  %1 = comm.wait %0 : !comm.future<tensor<64xf32>> loc("wait_a")
  %2 = comm.all_gather %b on @dp {comm.cost = #comm.cost<time = 100000>} : (tensor<8xf32>) -> !comm.future<tensor<64xf32>> loc("gather_b")
  %3 = comm.wait %2 : !comm.future<tensor<64xf32>> loc("wait_b")
  return %1, %3 : tensor<64xf32>, tensor<64xf32>
}

func.func @second(%a: tensor<8xf32>, %b: tensor<8xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %2 = comm.all_gather %b on @dp {comm.cost = #comm.cost<time = 100000>} : (tensor<8xf32>) -> !comm.future<tensor<64xf32>> loc("gather_b")
  %3 = comm.wait %2 : !comm.future<tensor<64xf32>> loc("wait_b")
  %0 = comm.all_gather %a on @dp {comm.cost = #comm.cost<time = 700000>} : (tensor<8xf32>) -> !comm.future<tensor<64xf32>> loc("gather_a")
  %1 = comm.wait %0 : !comm.future<tensor<64xf32>> loc("wait_a")
  return %1, %3 : tensor<64xf32>, tensor<64xf32>
}

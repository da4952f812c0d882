// Tests that a program on several streams has no bound from the memory limit: its lemmas hold on one stream only, and this
// program ends 0.7 us before the time that they give.

// RUN: comm-opt %s --comm-report=%t.json -o /dev/null 2>&1 | FileCheck %s
// RUN: FileCheck %s --check-prefix=JSON --input-file=%t.json
// CHECK-NOT: contradicts
// CHECK: makespan           57.3 us
// CHECK: lower bound                    56.0 us
// CHECK-NOT: within the limit
// JSON-NOT: "limit_lower_bound": 58000

comm.group @dp #comm.iota<[1, 4]>

func.func @two_streams(%arg0: tensor<4xf32>) {
  %0 = comm.compute "view"(%arg0) aliases [0] : (tensor<4xf32>) -> tensor<4xf32>
  %1 = comm.compute "op"(%0) {comm.cost = #comm.cost<time = 6000>} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = comm.record on 0 : !comm.event
  %3 = comm.compute "view"(%1) aliases [0] : (tensor<4xf32>) -> tensor<4xf32>
  %4 = comm.compute "op"(%arg0, %arg0) {comm.cost = #comm.cost<time = 6000>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %5 = comm.compute "op"(%0) {comm.cost = #comm.cost<time = 11000>} : (tensor<4xf32>) -> tensor<4xf32>
  %6 = comm.record on 0 : !comm.event
  %7 = comm.compute "op"(%0, %5) {comm.cost = #comm.cost<time = 4000>, comm.hybrid = @dp} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %8 = comm.record on 0 : !comm.event
  comm.await_event %2 on 1 : !comm.event
  %9 = comm.all_reduce sum %3 on @dp {comm.cost = #comm.cost<time = 4000>, comm.stream = 1 : i64} : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %10 = comm.wait %9 {comm.stream = 1 : i64} : !comm.future<tensor<4xf32>>
  %11 = comm.record on 1 : !comm.event
  comm.await_event %8 on 1 : !comm.event
  %12 = comm.compute "op"(%4) {comm.cost = #comm.cost<time = 11000>} : (tensor<4xf32>) -> tensor<4xf32>
  %13 = comm.record on 0 : !comm.event
  comm.await_event %11 on 0 : !comm.event
  %14 = comm.all_reduce sum %0 on @dp {comm.cost = #comm.cost<time = 2000>, comm.stream = 1 : i64} : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %15 = comm.wait %14 {comm.stream = 1 : i64} : !comm.future<tensor<4xf32>>
  comm.await_event %13 on 1 : !comm.event
  %16 = comm.all_reduce sum %10 on @dp {comm.cost = #comm.cost<time = 12000>, comm.stream = 1 : i64} : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %17 = comm.wait %16 : !comm.future<tensor<4xf32>>
  %18 = comm.record on 0 : !comm.event
  comm.await_event %6 on 1 : !comm.event
  %19 = comm.all_reduce sum %5 on @dp {comm.cost = #comm.cost<time = 3000>, comm.stream = 1 : i64} : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  comm.await_event %18 on 1 : !comm.event
  %20 = comm.all_reduce sum %15 on @dp {comm.cost = #comm.cost<time = 3000>, comm.stream = 1 : i64} : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %21 = comm.wait %19 : !comm.future<tensor<4xf32>>
  %22 = comm.wait %20 : !comm.future<tensor<4xf32>>
  %23 = comm.compute "view"(%17) aliases [0] : (tensor<4xf32>) -> tensor<4xf32>
  %24 = comm.compute "op"(%0) {comm.cost = #comm.cost<time = 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

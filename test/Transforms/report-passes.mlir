// RUN: comm-opt %s --pass-pipeline='builtin.module(comm-raise,comm-sink-waits)' --comm-report=%t.json -o /dev/null 2>%t.table
// RUN: FileCheck %s --input-file=%t.json
// RUN: FileCheck %s --check-prefix=TABLE --input-file=%t.table
// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-order-fsdp,comm-schedule,comm-report" --comm-report=%t2.json -o /dev/null 2>/dev/null
// RUN: FileCheck %s --check-prefix=SCHEDULE --input-file=%t2.json
// RUN: comm-opt %s --comm-raise --comm-report=%t3.json -o /dev/null 2>&1 | FileCheck %s --check-prefix=SINGLE

// Tests what each pass did by itself, by hand: the gather takes 300 ns. comm-raise puts "mm" (200 ns) behind its start, so
// that 100 ns stay exposed; comm-sink-waits puts "relu" in front of the wait, so that computation is 100 ns longer.
// CHECK: "passes": [
// CHECK: "exposed_ns": {
// CHECK-NEXT: "after": 100,
// CHECK-NEXT: "before": 300
// CHECK: "function": "step",
// CHECK-NEXT: "improvement_ns": 200,
// CHECK: "makespan_ns": {
// CHECK-NEXT: "after": 500,
// CHECK-NEXT: "before": 700
// CHECK: "moved": 1,
// CHECK-NEXT: "pass": "comm-raise",
// CHECK: "per_collective": [
// CHECK: "compute_ns": {
// CHECK-NEXT: "after": 200,
// CHECK-NEXT: "before": 0
// CHECK: "cost_ns": 300,
// CHECK: "hidden_by": {
// CHECK-NEXT: "count": 1,
// CHECK-NEXT: "names": [
// CHECK-NEXT: "mm"
// CHECK: "improvement_ns": 200,
// CHECK-NEXT: "kind": "all_gather",
// CHECK: "loc": "gather",
// CHECK-NEXT: "moves": 2,
// CHECK-NEXT: "passed": {
// CHECK-NEXT: "count": 2,
// CHECK-NEXT: "names": [
// CHECK-NEXT: "cast",
// CHECK-NEXT: "mm"
// CHECK: "slack_ns": -100,
// CHECK: "pass": "comm-sink-waits",
// CHECK: "compute_ns": {
// CHECK-NEXT: "after": 400,
// CHECK-NEXT: "before": 200
// CHECK: "hidden_by": {
// CHECK-NEXT: "count": 2,
// CHECK: "kind": "wait",
// CHECK: "moves": 1,
// CHECK: "relu"
// CHECK: "slack_ns": 100,
// TABLE: comm-raise of step: moved 1 of 1, exposed 300 ns -> 100 ns, makespan 700 ns -> 500 ns
// TABLE: where
// TABLE: gather {{ *}}2 {{ *}}300 ns {{ *}}200 ns {{ *}}100 ns
// TABLE: comm-sink-waits of step: moved 1 of 1, exposed 100 ns -> 0 ns
// Tests that a single pass, about which the table says everything already, gets no lines of its own.
// SINGLE: step: 5 operations
// SINGLE-NOT: comm-raise of step
// Tests that comm-schedule is among the passes, and that a report in between takes nothing away.
// SCHEDULE: "pass": "comm-order-fsdp"
// SCHEDULE: "pass": "comm-schedule"
// SCHEDULE: "kind": "all_gather",
// SCHEDULE-NEXT: "limiting_factor": "already hidden"

comm.group @dp #comm.iota<[1, 4]>
func.func @step(%x: tensor<32xf32>, %y: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<128xf32>) {
  %c = comm.compute "cast"(%y) {comm.cost = #comm.cost<time = 0>} : (tensor<64xf32>) -> tensor<64xf32>
  %a = comm.compute "mm"(%y) {comm.cost = #comm.cost<time = 200>} : (tensor<64xf32>) -> tensor<64xf32>
  %f = comm.all_gather %x on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<32xf32>) -> !comm.future<tensor<128xf32>> loc("gather")
  %w = comm.wait %f : !comm.future<tensor<128xf32>> loc("done")
  %b = comm.compute "relu"(%a) {comm.cost = #comm.cost<time = 200>} : (tensor<64xf32>) -> tensor<64xf32>
  return %b, %c, %w : tensor<64xf32>, tensor<64xf32>, tensor<128xf32>
}

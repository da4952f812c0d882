// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-reorder-preserving-peak-memory,comm-sink-waits-preserving-peak-memory table=false" --comm-report=%t.json | FileCheck %s
// RUN: FileCheck %s --check-prefix=JSON --input-file=%t.json
// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-reorder-preserving-peak-memory,comm-sink-waits-preserving-peak-memory table=true" --comm-timeline=%t.html --comm-machine=a100-sxm -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=TABLE
// RUN: FileCheck %s --check-prefix=HTML --input-file=%t.html
// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-sink-waits,comm-raise table=false" | FileCheck %s --check-prefix=LIST
// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-raise memory-limit-bytes=100 table=true" -o /dev/null 2>&1 | FileCheck %s --check-prefix=ABOVE
// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-reorder-preserving-peak-memory,comm-sink-waits-preserving-peak-memory table=false memory-budget-ratio=0.5" --mlir-disable-threading \
// RUN:   | FileCheck %s
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory --comm-sink-waits-preserving-peak-memory \
// RUN:   --remarks-filter="comm-.*" 2>&1 >/dev/null | FileCheck %s --check-prefix=BUDGET

// Tests that the pipeline hides the gather behind both computes, reports before and after.
comm.group @dp #comm.iota<[1, 4]>

// CHECK-LABEL: func @step
// CHECK-NEXT: comm.all_gather
// CHECK-NEXT: compute "a"
// CHECK-NEXT: compute "b"
// CHECK-NEXT: comm.wait
// JSON: "exposed_ns": {
// JSON-NEXT: "after": 0,
// JSON-NEXT: "before": 300
// JSON: "makespan_ns": {
// JSON-NEXT: "after": 450,
// JSON-NEXT: "before": 750,
// TABLE: machine a100-sxm
// HTML: <!doctype html>
// Tests that the table says so where passes that know no limit leave the peak above it.
// ABOVE: peak {{.*}} above the limit of 100 B
// LIST: comm.all_gather
// LIST-NEXT: compute "a"
// Tests that two passes in a row share one budget: the second one's limit is not a fraction of what the first one used.
// BUDGET: Category:comm-reorder-preserving-peak-memory | {{.*}}Remark="makespan{{.*}} limit [[LIMIT:[0-9.]+ [KMG]?i?B]]"
// BUDGET: Category:comm-sink-waits-preserving-peak-memory | {{.*}}Remark="makespan{{.*}} limit [[LIMIT]]"
func.func @step(%x: tensor<32xf32>, %y: tensor<64xf32>) -> tensor<64xf32> {
  %a = comm.compute "a"(%y) {comm.cost = #comm.cost<time = 200>} : (tensor<64xf32>) -> tensor<64xf32>
  %b = comm.compute "b"(%a) {comm.cost = #comm.cost<time = 200, workspace = 4096>} : (tensor<64xf32>) -> tensor<64xf32>
  %f = comm.all_gather %x on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<32xf32>) -> !comm.future<tensor<128xf32>>
  %w = comm.wait %f : !comm.future<tensor<128xf32>>
  %c = comm.compute "c"(%b, %w) {comm.cost = #comm.cost<time = 50, workspace = 8192>} : (tensor<64xf32>, tensor<128xf32>) -> tensor<64xf32>
  return %c : tensor<64xf32>
}

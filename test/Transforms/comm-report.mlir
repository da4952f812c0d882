// RUN: comm-opt %s --comm-report="table=false report-file=%t.json" | FileCheck %s
// RUN: FileCheck %s --check-prefix=JSON --input-file=%t.json
// RUN: comm-opt %s --comm-report="timeline-file=%t.trace" -o /dev/null 2>&1 | FileCheck %s --check-prefix=TABLE
// RUN: %python -m json.tool %t.trace | FileCheck %s --check-prefix=TRACE
// RUN: comm-opt %s --comm-report="table=false timeline-file=%t.html" -o /dev/null
// RUN: FileCheck %s --check-prefix=HTML --input-file=%t.html

// Tests that makespan, exposed time and peak are those of the model by hand. The gather runs from 100 to 400 ns, the
// compute beside it until 300: 100 ns are exposed. Live at the last operation: %c (256 B), %full (512 B) and %d (256 B).

comm.group @dp #comm.iota<[1, 4]>

// CHECK: func.func @step({{.*}}) -> tensor<64xf32> attributes {comm.schedule_signature = "{{[0-9a-f]+}}"}
func.func @step(%x: tensor<32xf32>, %y: tensor<64xf32> {comm.donated}) -> tensor<64xf32> {
  %a = comm.compute "cast"(%x) {comm.cost = #comm.cost<time = 100>} : (tensor<32xf32>) -> tensor<32xf32>
  %f = comm.all_gather %a on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<32xf32>) -> !comm.future<tensor<128xf32>> loc("gather")
  %c = comm.compute "mm"(%y) {comm.cost = #comm.cost<time = 200>} : (tensor<64xf32>) -> tensor<64xf32>
  %full = comm.wait %f : !comm.future<tensor<128xf32>>
  %d = comm.compute "use"(%c, %full) {comm.cost = #comm.cost<time = 50>} : (tensor<64xf32>, tensor<128xf32>) -> tensor<64xf32>
  return %d : tensor<64xf32>
}

// Tests that a function without collectives is not reported.
func.func @nothing(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// JSON: "functions": [
// JSON: "buffer_plan_bytes": {
// JSON-NEXT: "after": 1280,
// JSON-NEXT: "before": 1280,
// JSON-NEXT: "lower_bound": 1152
// JSON: "collectives": 1,
// JSON: "exposed_ns": {
// JSON-NEXT: "after": 100,
// JSON-NEXT: "before": 100
// JSON: "makespan_ns": {
// JSON-NEXT: "after": 450,
// JSON-NEXT: "before": 450,
// JSON-NEXT: "limit_lower_bound": 450,
// JSON-NEXT: "limit_lower_bound_by": "critical path",
// JSON-NEXT: "lower_bound": 450,
// JSON-NEXT: "lower_bound_by": "critical path"
// JSON: "name": "step",
// JSON-NEXT: "numerics": {
// JSON-NEXT: "class": "exact"
// JSON-NEXT: },
// JSON-NEXT: "ops": 5,
// JSON: "peak_bytes": {
// JSON-NEXT: "after": 1152,
// JSON-NEXT: "arguments": 128,
// JSON-NEXT: "before": 1152,
// JSON-NEXT: "limit": 1152
// JSON: "bytes": 512,
// JSON-NEXT: "cost_ns": 300,
// JSON: "limiting_factor": "data dependence on {{.*}}",
// JSON-NEXT: "loc": "gather"
// JSON-NOT: nothing
// JSON: "schema_version": 1

// TABLE: machine h100-sxm
// TABLE: step: 5 operations, 1 collective{{$}}
// TABLE: makespan {{ *}}450 ns {{ *}}450 ns
// TABLE: exposed {{ *}}100 ns {{ *}}100 ns
// TABLE: buffer plan {{ *}}1.25 KiB {{ *}}1.25 KiB  one arena; 1.12 KiB live at most
// TABLE: lower bound {{ *}}450 ns  critical path; at most 0.00 % from optimal
// TABLE: gather {{ *}}all_gather {{ *}}512 B {{ *}}300 ns {{ *}}100 ns

// TRACE: "traceEvents"
// HTML: <!doctype html>
// HTML: "name":"step","limit":1152,
// The rectangles: four that compute or wait, and the gather's on its lane from 100 to 400.
// HTML-SAME: "spans":{"op":[0,1,2,3,4],"row":[0,1,0,0,0],"start":[0,100,100,300,400],"length":[100,300,200,100,50],"stall":[0,0,0,1,0]}
// Live bytes jump where an operation is issued: the gather's with those of the matrix product beside it.
// HTML-SAME: "memory":{"when":[0,100,100,400,400],"live":[384,896,1152,896,1024]}

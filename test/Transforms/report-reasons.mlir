// Tests that remark, report and timeline say the same words of the same collective, whichever pass has scheduled it.
// RUN: comm-opt %s --reorder-comm-overlap="report-file=%t.json timeline-file=%t.trace" --remarks-filter=comm-schedule -o /dev/null 2>&1 | FileCheck %s --check-prefix=SCHEDULE
// RUN: FileCheck %s --check-prefix=JSON --input-file=%t.json
// RUN: FileCheck %s --check-prefix=TRACE --input-file=%t.trace
// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-sink-waits report-file=%t.json timeline-file=%t.html" --remarks-filter=comm-sink-waits -o /dev/null 2>&1 | FileCheck %s --check-prefix=SINK
// RUN: FileCheck %s --check-prefix=JSON --input-file=%t.json
// RUN: FileCheck %s --check-prefix=HTML --input-file=%t.html

comm.group @dp #comm.iota<[1, 8]>

// The sum begins when its input is there, and there is too little to compute until it is used.
// SCHEDULE: ExposedNsAfter=250,{{.*}} LimitingFactor="data dependence on producer"
// SCHEDULE: sum {{ *}}all_reduce {{.*}} 250 ns  data dependence on producer
// SINK: exposed 250 ns, was 300 ns: data dependence on producer
// SINK: sum {{ *}}all_reduce {{.*}} 250 ns  data dependence on producer
// JSON: "limiting_factor": "data dependence on producer"
// JSON-NEXT: "loc": "sum"
// JSON: "exposed_because": "data dependence on producer"
// TRACE: "cat":"exposed","args":{"limiting_factor":"data dependence on producer"}
// The page has each text once: the factor of the start and of its wait is the last of twelve.
// HTML: "starts":{"op":[1],"bytes":[32],"exposed":[250],"factor":[11]},"waits":{"op":[3],"start":[1],"exposed":[250],"factor":[11]}
// HTML-SAME: "strings":[{{("[^"]*",)+}}"data dependence on producer"]
func.func @step(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %p = comm.compute "mm"(%x) {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>) -> tensor<8xf32> loc("producer")
  %f = comm.all_reduce sum %p on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>> loc("sum")
  %s = comm.wait %f : !comm.future<tensor<8xf32>> loc("sum_wait")
  %o = comm.compute "mm"(%x) {comm.cost = #comm.cost<time = 50>} : (tensor<8xf32>) -> tensor<8xf32> loc("other")
  %u = comm.compute "mm"(%s) {comm.cost = #comm.cost<time = 50>} : (tensor<8xf32>) -> tensor<8xf32> loc("user")
  return %o, %u : tensor<8xf32>, tensor<8xf32>
}

// Tests that merging collectives with a measured time gains what the model's curve says of merging, not the difference
// between what was measured and what is modelled; and that the merged operation keeps a time, so that the rewritten block
// takes what was predicted.

// RUN: comm-opt %s --reorder-comm-overlap="memory-budget-ratio=1.0 table=false report-file=%t.json" -o %t.out.mlir 2>&1 | count 0
// RUN: FileCheck %s --input-file=%t.out.mlir
// RUN: FileCheck %s --input-file=%t.json --check-prefix=REPORT
// RUN: comm-opt %t.out.mlir --comm-report="table=false report-file=%t.found.json" -o /dev/null
// RUN: %python %S/Inputs/same_figures.py %t.json %t.found.json
// RUN: comm-opt %s --comm-bucket 2>&1 | FileCheck %s --check-prefix=GREEDY --implicit-check-not=warning
// RUN: comm-opt %s --comm-bucket="form=coalesced" 2>&1 | FileCheck %s --check-prefix=COALESCED --implicit-check-not=warning
// RUN: comm-opt %s --comm-bucket="mixed-types" -o /dev/null 2>&1 | count 0

comm.group @dp #comm.iota<[1, 8]>

// Two gathers whose latency was measured as fifteen times what the model says: one of them is saved, and paid for with
// copies. The model alone would say 13 us.
// CHECK-LABEL: func.func @slow_latency
// CHECK: comm.all_gather {{.*}} {comm.cost = #comm.cost<time = 100[[#]]>}
// CHECK-NOT: comm.all_gather
// CHECK: return
// REPORT: "after": 10[[#]],
// REPORT-NEXT: "before": 200000
// GREEDY-LABEL: func.func @slow_latency
// GREEDY: comm.all_gather {{.*}} {comm.cost = #comm.cost<time = 100[[#]]>}
// GREEDY-NOT: comm.all_gather
// COALESCED-LABEL: func.func @slow_latency
// COALESCED: comm.all_gather {{.*}} {comm.cost = #comm.cost<time = 200000>}
func.func @slow_latency(%x: tensor<16xf32>, %y: tensor<16xf32>) -> (tensor<128xf32>, tensor<128xf32>) {
  %f = comm.all_gather %x on @dp {comm.cost = #comm.cost<time = 100000>} : (tensor<16xf32>) -> !comm.future<tensor<128xf32>>
  %g = comm.wait %f : !comm.future<tensor<128xf32>>
  %f2 = comm.all_gather %y on @dp {comm.cost = #comm.cost<time = 100000>} : (tensor<16xf32>) -> !comm.future<tensor<128xf32>>
  %g2 = comm.wait %f2 : !comm.future<tensor<128xf32>>
  return %g, %g2 : tensor<128xf32>, tensor<128xf32>
}

// An outlier and a measured time that fits the model do not go together, nor does either with a gather that was not
// measured: the curve that fits one of them would make the others cheaper or dearer than they are. The greedy rule merges
// what it is told to; its bucket has the members' time.
// CHECK-LABEL: func.func @three_sources
// CHECK-COUNT-3: comm.all_gather
// GREEDY-LABEL: func.func @three_sources
// GREEDY: comm.all_gather {{.*}} {comm.cost = #comm.cost<time = {{[0-9]+}}>}
// GREEDY-NOT: comm.all_gather
func.func @three_sources(%x: tensor<16xf32>, %y: tensor<16xf32>, %z: tensor<16xf32>)
    -> (tensor<128xf32>, tensor<128xf32>, tensor<128xf32>) {
  %f = comm.all_gather %x on @dp {comm.cost = #comm.cost<time = 100000>} : (tensor<16xf32>) -> !comm.future<tensor<128xf32>>
  %g = comm.wait %f : !comm.future<tensor<128xf32>>
  %f2 = comm.all_gather %y on @dp {comm.cost = #comm.cost<time = 9000>} : (tensor<16xf32>) -> !comm.future<tensor<128xf32>>
  %g2 = comm.wait %f2 : !comm.future<tensor<128xf32>>
  %f3 = comm.all_gather %z on @dp : (tensor<16xf32>) -> !comm.future<tensor<128xf32>>
  %g3 = comm.wait %f3 : !comm.future<tensor<128xf32>>
  return %g, %g2, %g3 : tensor<128xf32>, tensor<128xf32>, tensor<128xf32>
}

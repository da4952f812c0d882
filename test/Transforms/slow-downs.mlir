// Tests that no schedule is slower than its input on a machine with slow-downs, and that what the passes and the report
// say includes them: nobody warns of a prediction that does not hold.

// RUN: sed -e 's/"compute_permille": 0/"compute_permille": 250/' -e 's/"link_permille": 0/"link_permille": 1000/' \
// RUN:   %commsched_src_root/machines/h100-sxm.json > %t.slow.json
// RUN: comm-opt %s --reorder-comm-overlap="machine=%t.slow.json table=false report-file=%t.json" -o %t.out.mlir 2>&1 | count 0
// RUN: FileCheck %s --input-file=%t.json --check-prefix=REPORT
// RUN: FileCheck %s --input-file=%t.out.mlir
// RUN: comm-opt %t.out.mlir --comm-report="machine=%t.slow.json table=false report-file=%t.found.json" -o /dev/null
// RUN: %python %S/Inputs/same_figures.py %t.json %t.found.json
// RUN: comm-opt %s --comm-bucket="machine=%t.slow.json" -o /dev/null 2>&1 | count 0
// RUN: comm-opt %s --comm-pareto="machine=%t.slow.json file=%t.pareto.json limits=3" -o /dev/null
// RUN: FileCheck %s --input-file=%t.pareto.json --check-prefix=PARETO
// RUN: comm-opt %s --comm-schedule="machine=%t.slow.json" --remarks-filter=comm-schedule -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

comm.group @dp #comm.iota<[1, 4]>
comm.group @tp #comm.iota<[1, 4]>

// Side by side, the two collectives would take 29.8 us: the reduction begins while the gather flies on the same link, and
// takes twice its time. Without slow-downs they take 18 us.
// CHECK-LABEL: func.func @one_link
// CHECK: comm.all_gather
// CHECK: comm.compute "c1"
// CHECK: comm.wait
// CHECK: comm.all_reduce
// REPORT: "after": 21000
// REPORT-NEXT: "before": 21000
// PARETO: "makespan_ns": 21000
// REMARK-COUNT-2: ExposedNs
func.func @one_link(%x: tensor<64xf32>, %w: tensor<16xf32>) -> tensor<64xf32> {
  %f = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 10000>} : (tensor<16xf32>) -> !comm.future<tensor<64xf32>>
  %c1 = comm.compute "c1"(%x) {comm.cost = #comm.cost<time = 7000>} : (tensor<64xf32>) -> tensor<64xf32>
  %g = comm.wait %f : !comm.future<tensor<64xf32>>
  %r = comm.all_reduce sum %c1 on @tp {comm.cost = #comm.cost<time = 10000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  %c2 = comm.compute "c2"(%g) {comm.cost = #comm.cost<time = 2000>} : (tensor<64xf32>) -> tensor<64xf32>
  %h = comm.wait %r : !comm.future<tensor<64xf32>>
  %c3 = comm.compute "c3"(%h, %c2) {comm.cost = #comm.cost<time = 1000>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %c3 : tensor<64xf32>
}

// The lane of an operation that computes and communicates has no link of its own, wherever the operation stands: the
// prediction holds after the gather has moved before it.
// CHECK-LABEL: func.func @fused
// CHECK: comm.all_gather
// CHECK: comm.hybrid
func.func @fused(%x: tensor<64xf32>, %w: tensor<16xf32>) -> tensor<64xf32> {
  %c0 = comm.compute "fused_matmul"(%x) {comm.hybrid = @tp, comm.cost = #comm.cost<time = 9000>} : (tensor<64xf32>) -> tensor<64xf32>
  %c1 = comm.compute "c1"(%c0) {comm.cost = #comm.cost<time = 7000>} : (tensor<64xf32>) -> tensor<64xf32>
  %f = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 10000>} : (tensor<16xf32>) -> !comm.future<tensor<64xf32>>
  %g = comm.wait %f : !comm.future<tensor<64xf32>>
  %c2 = comm.compute "c2"(%c1, %g) {comm.cost = #comm.cost<time = 1000>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %c2 : tensor<64xf32>
}

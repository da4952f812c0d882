// Tests that a profile's contention tables reach every prediction: a product beside a gather gets what the gather leaves,
// a kernel that is bound by memory gets less, and the scheduler chooses which of them a gather runs beside.

// RUN: %python %S/Inputs/with_contention.py %commsched_src_root/machines/h100-sxm.json %t.machine.json \
// RUN:   all_gather:matrix:250:0 all_gather:memory:1000:1000
// RUN: comm-opt %s --comm-report="machine=%t.machine.json table=false report-file=%t.given.json" -o /dev/null
// RUN: FileCheck %s --input-file=%t.given.json --check-prefix=GIVEN
// RUN: comm-opt %s --reorder-comm-overlap="machine=%t.machine.json table=false report-file=%t.json" -o %t.out.mlir 2>&1 | count 0
// RUN: FileCheck %s --input-file=%t.json --check-prefix=REPORT
// RUN: FileCheck %s --input-file=%t.out.mlir
// RUN: comm-opt %t.out.mlir --comm-report="machine=%t.machine.json table=false report-file=%t.found.json" -o /dev/null
// RUN: %python %S/Inputs/same_figures.py %t.json %t.found.json

// The certificate plays it by itself, and checks the bound of the memory.
// RUN: comm-opt %s --reorder-comm-overlap="machine=%t.machine.json table=false certificate-file=%t.cert" -o /dev/null
// RUN: env PYTHONPATH=%commsched_src_root/python %python -m commsched_verify %t.cert | FileCheck %s --check-prefix=CERTIFICATE
// CERTIFICATE: choose: proven: the answer keeps
// CERTIFICATE-NEXT: its makespan is 15001 ns
// CERTIFICATE-NEXT: {{no memory that is written is accessed twice|[0-9]+ accesses to [0-9]+ places in memory keep their order}};
// CERTIFICATE-NEXT: no order and bucketing is faster than {{[0-9]+}} ns
// CERTIFICATE-NEXT: choose: believed: costs and demands

// The timelines have the use of each resource.
// RUN: comm-opt %s --comm-report="machine=%t.machine.json table=false timeline-file=%t.trace.json" -o /dev/null
// RUN: FileCheck %s --input-file=%t.trace.json --check-prefix=TRACE
// RUN: comm-opt %s --comm-report="machine=%t.machine.json table=false timeline-file=%t.html" -o /dev/null
// RUN: FileCheck %s --input-file=%t.html --check-prefix=PAGE
// RUN: comm-opt %s --comm-report="machine=%t.machine.json" -o /dev/null 2>&1 | FileCheck %s --check-prefix=TABLE
// TRACE: "ts":0,"name":"resources in use, percent","args":{"compute_units":35,"memory":100,
// PAGE: "undisturbed":13000,"resources":[{"name":"compute_units","when":[0,10000,
// PAGE-SAME: {"name":"memory","when":[0,
// TABLE: contention    before 6.00 us (31.6 %), after 6.00 us (31.6 %) of the makespan is slow-down
// TABLE-NEXT: in use        compute_units 66 % -> 66 % memory 79 % -> 79 %

// Tables of zeros are the same as none, byte for byte.
// RUN: %python %S/Inputs/with_contention.py %commsched_src_root/machines/h100-sxm.json %t.zero.json \
// RUN:   all_gather:matrix:0:0 all_gather:memory:0:0
// RUN: comm-opt %s --reorder-comm-overlap="machine=%t.zero.json" -o %t.zero.mlir 2> %t.zero.txt
// RUN: comm-opt %s --reorder-comm-overlap="machine=h100-sxm" -o %t.none.mlir 2> %t.none.txt
// RUN: diff %t.zero.mlir %t.none.mlir

// A wrong number is an error that names it.
// RUN: %python %S/Inputs/with_contention.py %commsched_src_root/machines/h100-sxm.json %t.wrong.json all_gather:vector:1:1
// RUN: not comm-opt %s --reorder-comm-overlap="machine=%t.wrong.json" -o /dev/null 2>&1 | FileCheck %s --check-prefix=WRONG
// WRONG: error: machine '{{.*}}.wrong.json': field 'contention[0].against': expected one of matrix, memory

comm.group @dp #comm.iota<[1, 4]>

// The elementwise kernel moves 16.8 MB in 5 us, which is all that the memory can do. As given, the gather runs beside it,
// and both get half of the memory: the kernel ends at 10 us. Then the product gets 4/5 of the compute units until the
// gather ends at 15 us, and ends at 19 us. In the other order the gather takes 10 us, in which the product of 8 us gets
// its 4/5, and the elementwise kernel follows alone: 15 us. Without contention both orders take 13 us. The product needs a
// few millionths of the memory, too, which is the odd nanosecond.
// GIVEN: "contention": {
// GIVEN: "slowdown_ns": {
// GIVEN-NEXT: "after": 6001
// CHECK-LABEL: func.func @choose
// CHECK: comm.all_gather
// CHECK-NEXT: comm.compute "aten.mm"
// CHECK: comm.compute "relu"
// REPORT: "makespan_ns"
// REPORT-NEXT: "after": 15001
// REPORT-NEXT: "before": 19001
func.func @choose(%x: tensor<2048x1024xf32>, %m: tensor<64xf32>, %w: tensor<16xf32>) -> (tensor<2048x1024xf32>, tensor<64xf32>, tensor<64xf32>) {
  %f = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 10000>} : (tensor<16xf32>) -> !comm.future<tensor<64xf32>>
  %e = comm.compute "relu"(%x) {comm.cost = #comm.cost<time = 5000>} : (tensor<2048x1024xf32>) -> tensor<2048x1024xf32>
  %p = comm.compute "aten.mm"(%m) {comm.cost = #comm.cost<time = 8000>} : (tensor<64xf32>) -> tensor<64xf32>
  %g = comm.wait %f : !comm.future<tensor<64xf32>>
  return %e, %p, %g : tensor<2048x1024xf32>, tensor<64xf32>, tensor<64xf32>
}

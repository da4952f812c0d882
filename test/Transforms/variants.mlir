// Tests that the scheduler chooses how collectives are carried out if the profile lists several ways, that the choice is
// written into the program, and that every later prediction is of the way that was chosen.

// RUN: %python %S/Inputs/with_contention.py %commsched_src_root/machines/h100-sxm.json %t.machine.json resources \
// RUN:   all_gather:matrix:400:0 all_gather:memory:100:100 \
// RUN:   variant:all_gather:copy_engine:0:1100 variant:all_gather:symmetric:16:900 variant:all_gather:ring:4:3000
// RUN: comm-opt %s --reorder-comm-overlap="machine=%t.machine.json table=false report-file=%t.json" -o %t.out.mlir 2>&1 | count 0
// RUN: FileCheck %s --input-file=%t.out.mlir
// RUN: FileCheck %s --input-file=%t.json --check-prefix=REPORT

// The report of the result finds the same figures, and a second run changes nothing.
// RUN: comm-opt %t.out.mlir --comm-report="machine=%t.machine.json table=false report-file=%t.found.json" -o /dev/null
// RUN: %python %S/Inputs/same_figures.py %t.json %t.found.json
// RUN: comm-opt %t.out.mlir --reorder-comm-overlap="machine=%t.machine.json" -o %t.again.mlir 2> /dev/null
// RUN: diff %t.out.mlir %t.again.mlir

// The choice is part of the signature that ranks compare.
// RUN: comm-opt %s --comm-schedule="machine=%t.machine.json" | grep -o "schedule_signature = .*[0-9a-f]\"" | head -1 > %t.with.txt
// RUN: comm-opt %s --comm-schedule="machine=h100-sxm" | grep -o "schedule_signature = .*[0-9a-f]\"" | head -1 > %t.without.txt
// RUN: not diff %t.with.txt %t.without.txt

// A remark names it.
// RUN: comm-opt %s --comm-schedule="machine=%t.machine.json" --remark-policy=all --remarks-filter=comm-schedule -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// REMARK: carried out by copy-engine

// A certificate has what was chosen, and its bound is one for any choice.
// RUN: comm-opt %s --reorder-comm-overlap="machine=%t.machine.json table=false certificate-file=%t.cert" -o /dev/null 2>&1 | count 0
// RUN: env PYTHONPATH=%commsched_src_root/python %python -m commsched_verify --spmd %t.cert %t.cert | FileCheck %s --check-prefix=CERTIFICATE
// RUN: FileCheck %s --input-file=%t.cert --check-prefix=CHOSEN
// CERTIFICATE: choose: proven:
// CERTIFICATE: no order and bucketing and choice is faster than
// CERTIFICATE: the ranks agree
// CHOSEN: "name":"choose"{{.*}}"chosen":{{.*}}"collectives":{{.*}} by copy-engine"

// A wrong entry is an error that names it.
// RUN: %python %S/Inputs/with_contention.py %commsched_src_root/machines/h100-sxm.json %t.wrong.json variant:all_reduce:copy_engine:0:1
// RUN: not comm-opt %s --comm-schedule="machine=%t.wrong.json" -o /dev/null 2>&1 | FileCheck %s --check-prefix=WRONG
// WRONG: error: machine '{{.*}}.wrong.json': field 'variants[0].means': copy engines cannot reduce

comm.group @dp #comm.iota<[1, 8]>

// The gather takes compute units from the product beside it unless copy engines carry it out, which takes a tenth longer.
// CHECK-LABEL: func.func @choose
// CHECK: comm.all_gather {{.*}}comm.variant = "copy-engine"
// REPORT: "name": "choose"
// REPORT: "variant": "copy-engine"
func.func @choose(%m: tensor<64xf32>, %w: tensor<4194304xf32>) -> (tensor<64xf32>, tensor<33554432xf32>) {
  %f = comm.all_gather %w on @dp : (tensor<4194304xf32>) -> !comm.future<tensor<33554432xf32>>
  %p = comm.compute "aten.mm"(%m) {comm.cost = #comm.cost<time = 800000>} : (tensor<64xf32>) -> tensor<64xf32>
  %g = comm.wait %f : !comm.future<tensor<33554432xf32>>
  return %p, %g : tensor<64xf32>, tensor<33554432xf32>
}

// Nothing is beside this gather, so the fastest way is the best; symmetric kernels need symmetric buffers.
// CHECK-LABEL: func.func @alone
// CHECK: comm.all_gather {{.*}}comm.symmetric = array<i1: true, true>, comm.variant = "symmetric-16"
func.func @alone(%w: tensor<4194304xf32>) -> tensor<33554432xf32> {
  %f = comm.all_gather %w on @dp : (tensor<4194304xf32>) -> !comm.future<tensor<33554432xf32>>
  %g = comm.wait %f : !comm.future<tensor<33554432xf32>>
  return %g : tensor<33554432xf32>
}

// A way that somebody has chosen stays, although another one is faster.
// CHECK-LABEL: func.func @given
// CHECK: comm.all_gather {{.*}}comm.variant = "ring-4"
func.func @given(%w: tensor<4194304xf32>) -> tensor<33554432xf32> {
  %f = comm.all_gather %w on @dp {comm.variant = "ring-4"} : (tensor<4194304xf32>) -> !comm.future<tensor<33554432xf32>>
  %g = comm.wait %f : !comm.future<tensor<33554432xf32>>
  return %g : tensor<33554432xf32>
}

// A measured time is that of one way, so there is no choice.
// CHECK-LABEL: func.func @measured
// CHECK-NOT: comm.variant
// CHECK: return
func.func @measured(%w: tensor<4194304xf32>) -> tensor<33554432xf32> {
  %f = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 900000>} : (tensor<4194304xf32>) -> !comm.future<tensor<33554432xf32>>
  %g = comm.wait %f : !comm.future<tensor<33554432xf32>>
  return %g : tensor<33554432xf32>
}

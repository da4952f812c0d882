// Tests that blocks on several streams are timed with contention, too.

// RUN: %python %S/Inputs/with_contention.py %commsched_src_root/machines/h100-sxm.json %t.machine.json \
// RUN:   all_gather:matrix:250:0 all_gather:memory:1000:1000
// RUN: comm-opt %s --comm-report="machine=%t.machine.json table=false report-file=%t.json" -o /dev/null
// RUN: FileCheck %s --input-file=%t.json
// RUN: comm-opt %s --comm-report="machine=h100-sxm table=false report-file=%t.none.json" -o /dev/null
// RUN: FileCheck %s --input-file=%t.none.json --check-prefix=NONE

comm.group @dp #comm.iota<[1, 4]>

// The gather begins on stream 1 when the event has arrived there, at 1.3 us. Until then the elementwise kernel runs alone.
// Then both get half of the memory: what is left of the kernel, 3.7 us, takes until 8.7 us. The product of 8 us gets 4/5 of
// the compute units until the gather ends, 6.3 us later, at 15 us, and ends after its last 2.96 us.
// CHECK: "contention": {
// CHECK: "slowdown_ns": {
// CHECK: "makespan_ns"
// CHECK-NEXT: "after": 17961
// CHECK-NEXT: "before": 17961
// NONE-NOT: "contention"
// NONE: "makespan_ns"
// NONE-NEXT: "after": 13000
func.func @streams(%x: tensor<2048x1024xf32>, %m: tensor<64xf32>, %w: tensor<16xf32>) -> (tensor<2048x1024xf32>, tensor<64xf32>, tensor<64xf32>) {
  %begin = comm.record on 0 : !comm.event
  comm.await_event %begin on 1 : !comm.event
  %f = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 10000>, comm.stream = 1 : i64} : (tensor<16xf32>) -> !comm.future<tensor<64xf32>>
  %e = comm.compute "relu"(%x) {comm.cost = #comm.cost<time = 5000>} : (tensor<2048x1024xf32>) -> tensor<2048x1024xf32>
  %p = comm.compute "aten.mm"(%m) {comm.cost = #comm.cost<time = 8000>} : (tensor<64xf32>) -> tensor<64xf32>
  %g = comm.wait %f : !comm.future<tensor<64xf32>>
  return %e, %p, %g : tensor<2048x1024xf32>, tensor<64xf32>, tensor<64xf32>
}

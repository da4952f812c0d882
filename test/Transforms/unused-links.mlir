// Tests that a profile of the user's says, once, that its links do not price what NCCL's model prices.

// RUN: sed 's/"latency_ns": 14000/"latency_ns": 15000/' %commsched_src_root/machines/h100-sxm.json > %t.json
// RUN: comm-opt %s --reorder-comm-overlap --comm-machine=%t.json -o /dev/null 2>&1 | FileCheck %s
// RUN: cp %commsched_src_root/machines/h100-sxm.json %t.same.json
// RUN: comm-opt %s --reorder-comm-overlap --comm-machine=%t.same.json -o /dev/null 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: sed 's/"latency_ns": 20000/"latency_ns": 15000/' %commsched_src_root/machines/cpu-mpi.json > %t.mpi.json
// RUN: comm-opt %s --reorder-comm-overlap --comm-machine=%t.mpi.json -o /dev/null 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: comm-opt %s --reorder-comm-overlap --comm-machine=h100-sxm -o /dev/null 2>&1 | FileCheck %s --check-prefix=NONE
// CHECK: warning: machine '{{.*}}.json': 'links' is not used for all_gather, reduce_scatter, all_reduce, broadcast and reduce, because the profile has 'nccl'
// CHECK-NOT: warning:
// NONE-NOT: warning:

comm.group @dp #comm.iota<[1, 8]>
func.func @main(%x: tensor<4xf32>) -> tensor<32xf32> {
  %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<32xf32>>
  %w = comm.wait %f : !comm.future<tensor<32xf32>>
  return %w : tensor<32xf32>
}

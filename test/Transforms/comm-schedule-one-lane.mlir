// Tests a machine with one lane for all groups in the three orders of collectives: the order is that of groups, not of lanes.

// RUN: comm-opt %s --comm-schedule="machine=cpu-mpi collective-order=free" | FileCheck %s --check-prefix=MOVED
// RUN: comm-opt %s --comm-schedule="machine=cpu-mpi collective-order=group" | FileCheck %s --check-prefix=MOVED
// RUN: comm-opt %s --comm-schedule="machine=cpu-mpi collective-order=program" | FileCheck %s --check-prefix=KEPT

comm.group @dp #comm.iota<[1, 4]>
comm.group @ep #comm.iota<[1, 4]>

// The gather has to wait for 5 us of compute; the reduction of another group need not.
// MOVED: comm.all_reduce
// MOVED: comm.all_gather
// KEPT: comm.all_gather
// KEPT: comm.all_reduce
func.func @order(%x: tensor<64xf32>, %w: tensor<16xf32>) -> tensor<64xf32> {
  %s = comm.compute "slow"(%w) {comm.cost = #comm.cost<time = 5000>} : (tensor<16xf32>) -> tensor<16xf32>
  %f = comm.all_gather %s on @dp {comm.cost = #comm.cost<time = 4000>} : (tensor<16xf32>) -> !comm.future<tensor<64xf32>>
  %r = comm.all_reduce sum %x on @ep {comm.cost = #comm.cost<time = 6000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  %g = comm.wait %f : !comm.future<tensor<64xf32>>
  %h = comm.wait %r : !comm.future<tensor<64xf32>>
  %b = comm.compute "b"(%h, %g) {comm.cost = #comm.cost<time = 100>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %b : tensor<64xf32>
}

// RUN: comm-opt %s --comm-schedule="bucketing=false memory-limit-bytes=70000" | FileCheck %s --check-prefix=SLOT
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="memory-budget-ratio=1000000" | FileCheck %s --check-prefix=UNLIMITED
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="memory-budget-ratio=0" | FileCheck %s --check-prefix=TIGHT
// RUN: comm-opt %s --reorder-comm-overlap="bucketing=false memory-budget-ratio=1000000 table=false" | FileCheck %s --check-prefix=UNLIMITED

comm.group @dp #comm.iota<[1, 4]>

// Tests "one slot": beside the mm there is room for one gathered tensor. It is the gather of 8 ms that is prefetched, not
// the one of 1 ms that comes first in the program: hiding 8 ms beats hiding 1.
// SLOT-LABEL: func @one_slot
// SLOT: comm.all_gather {{.*}}time = 8000000
// SLOT-NEXT: compute "mm"
// SLOT: comm.all_gather {{.*}}time = 1000000
func.func @one_slot(%x: tensor<64xf32>, %small: tensor<2048xf32>, %large: tensor<2048xf32>) -> tensor<64xf32> {
  %m = comm.compute "mm"(%x) {comm.cost = #comm.cost<time = 8000000, workspace = 20000>} : (tensor<64xf32>) -> tensor<64xf32>
  %f = comm.all_gather %small on @dp {comm.cost = #comm.cost<time = 1000000>} : (tensor<2048xf32>) -> !comm.future<tensor<8192xf32>>
  %r = comm.wait %f : !comm.future<tensor<8192xf32>>
  %u = comm.compute "use_small"(%m, %r) {comm.cost = #comm.cost<time = 1000>} : (tensor<64xf32>, tensor<8192xf32>) -> tensor<64xf32>
  %g = comm.all_gather %large on @dp {comm.cost = #comm.cost<time = 8000000>} : (tensor<2048xf32>) -> !comm.future<tensor<8192xf32>>
  %s = comm.wait %g : !comm.future<tensor<8192xf32>>
  %v = comm.compute "use_large"(%u, %s) {comm.cost = #comm.cost<time = 1000>} : (tensor<64xf32>, tensor<8192xf32>) -> tensor<64xf32>
  return %v : tensor<64xf32>
}

// Tests "no memory limit": with a budget that nothing reaches, gathers are prefetched all the same, as far as dependences
// let them; without one, not beside an operation that is at the peak already.
// UNLIMITED-LABEL: func @no_limit
// UNLIMITED-NEXT: comm.all_gather
// UNLIMITED: compute "big"
// TIGHT-LABEL: func @no_limit
// TIGHT-NEXT: compute "big"
// TIGHT: comm.all_gather
func.func @no_limit(%w: tensor<2048xf32>, %x: tensor<64xf32>) -> (tensor<64xf32>, tensor<8192xf32>) {
  %b = comm.compute "big"(%x) {comm.cost = #comm.cost<time = 1000, workspace = 30000>} : (tensor<64xf32>) -> tensor<64xf32>
  %f = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<2048xf32>) -> !comm.future<tensor<8192xf32>>
  %r = comm.wait %f : !comm.future<tensor<8192xf32>>
  return %b, %r : tensor<64xf32>, tensor<8192xf32>
}

// RUN: comm-opt %s --comm-plan-memory="memory-budget-ratio=10" | FileCheck %s --check-prefixes=CHECK,MUCH
// RUN: comm-opt %s --comm-plan-memory | FileCheck %s --check-prefixes=CHECK,SAME
// RUN: comm-opt %s --comm-plan-memory="memory-limit-bytes=1280" | FileCheck %s --check-prefix=TIGHT
// RUN: comm-opt %s --comm-plan-memory="memory-budget-ratio=10" --remarks-filter=comm-plan-memory 2>&1 -o /dev/null | FileCheck %s --check-prefix=REMARK
// RUN: comm-opt %s --comm-plan-memory="memory-limit-bytes=1280" --remarks-filter=comm-plan-memory 2>&1 -o /dev/null | FileCheck %s --check-prefix=AGAIN
// RUN: comm-opt %s --comm-plan-memory="memory-budget-ratio=10 effort=0 bucketing=false" | FileCheck %s --check-prefixes=CHECK,MUCH
// RUN: comm-opt %s --reorder-comm-overlap="memory-plan=on memory-budget-ratio=10" | FileCheck %s --check-prefixes=CHECK,MUCH
// RUN: comm-opt %s --reorder-comm-overlap="memory-plan=off memory-budget-ratio=10 bucketing=false" | FileCheck %s --check-prefixes=CHECK,SAME

comm.group @dp #comm.iota<[1, 4]>

// Tests that a parameter that is gathered twice is kept if there is memory, and gathered again if there is not.
// CHECK-LABEL: func.func @second_gather
// MUCH: comm.all_gather
// MUCH-NOT: comm.all_gather
// SAME: comm.all_gather
// SAME: comm.all_gather
// CHECK: return
// REMARK: [Passed] plan | Category:comm-plan-memory | Again=0, AgainBytes=0, Candidates=1, Kept=1, KeptBytes=1024, Kind=block, LimitingFactor=none, LowerBoundNs=5200, MakespanNsAfter=5200, MakespanNsBefore={{[0-9]+}}, PeakBytesAfter=2056, {{.*}}Remark="kept instead of made again: 1 value of 1.00 KiB; made again instead of kept: 0 values of 0 B; 5.20 us, was
// REMARK: [Passed] value | Category:comm-plan-memory | AgainNs=4000, Bytes=1024, Kind=all_gather, LimitingFactor=none, Remark="kept instead of made again: 1.00 KiB; making it again takes 4.00 us"
// AGAIN: [Missed] plan {{.*}}LimitingFactor="no other plan is shorter"
// AGAIN: [Missed] value {{.*}}Kind=all_gather, LimitingFactor="no plan that changes it is shorter", Remark="made again, as in the program: 1.00 KiB; making it again takes 4.00 us"
func.func @second_gather(%w: tensor<64xf32>, %x: tensor<256xf32>) -> tensor<1xf32> {
  %f = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 4000>} : (tensor<64xf32>) -> !comm.future<tensor<256xf32>>
  %g = comm.wait %f : !comm.future<tensor<256xf32>>
  %a = comm.compute "a"(%x, %g) {comm.cost = #comm.cost<time = 100>} : (tensor<256xf32>, tensor<256xf32>) -> tensor<1xf32>
  %b = comm.compute "b"(%a) {comm.cost = #comm.cost<time = 1000, workspace = 1024>} : (tensor<1xf32>) -> tensor<1xf32>
  %f2 = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 4000>} : (tensor<64xf32>) -> !comm.future<tensor<256xf32>>
  %g2 = comm.wait %f2 : !comm.future<tensor<256xf32>>
  %c = comm.compute "c"(%b, %g2) {comm.cost = #comm.cost<time = 100>} : (tensor<1xf32>, tensor<256xf32>) -> tensor<1xf32>
  return %c : tensor<1xf32>
}

// Tests that a value that is read far apart is kept if it fits, and made again under a tight limit.
// CHECK-LABEL: func.func @activation
// CHECK: comm.compute "make"
// CHECK-NOT: comm.compute "make"
// CHECK: return
// TIGHT-LABEL: func.func @activation
// TIGHT: comm.compute "make"
// TIGHT: comm.compute "big"
// TIGHT: comm.compute "make"
// TIGHT: comm.compute "late"
// REMARK: [Missed] plan {{.*}}LimitingFactor="no other plan is shorter"
// AGAIN: [Passed] plan {{.*}}Again=1, AgainBytes=1024, {{.*}}Kept=0, KeptBytes=0
func.func @activation(%x: tensor<256xf32>) -> tensor<1xf32> {
  %v = comm.compute "make"(%x) {comm.cost = #comm.cost<time = 100>} : (tensor<256xf32>) -> tensor<256xf32>
  %a = comm.compute "early"(%v) {comm.cost = #comm.cost<time = 100>} : (tensor<256xf32>) -> tensor<1xf32>
  %b = comm.compute "big"(%a) {comm.cost = #comm.cost<time = 1000, workspace = 1024>} : (tensor<1xf32>) -> tensor<1xf32>
  %f = comm.all_reduce sum %b on @dp {comm.cost = #comm.cost<time = 500>} : (tensor<1xf32>) -> !comm.future<tensor<1xf32>>
  %g = comm.wait %f : !comm.future<tensor<1xf32>>
  %c = comm.compute "late"(%g, %v) {comm.cost = #comm.cost<time = 100>} : (tensor<1xf32>, tensor<256xf32>) -> tensor<1xf32>
  return %c : tensor<1xf32>
}

// Tests that a block without a value that can be made again, and an empty function, stay as they are.
// CHECK-LABEL: func.func @nothing
// CHECK: comm.all_gather
// CHECK-NEXT: comm.wait
// CHECK-NEXT: return
// CHECK-LABEL: func.func @empty
// CHECK-NEXT: return
// REMARK: [Missed] plan {{.*}}Candidates=0, {{.*}}LimitingFactor="no value can be made again"
func.func @nothing(%w: tensor<64xf32>) -> tensor<256xf32> {
  %f = comm.all_gather %w on @dp : (tensor<64xf32>) -> !comm.future<tensor<256xf32>>
  %g = comm.wait %f : !comm.future<tensor<256xf32>>
  return %g : tensor<256xf32>
}
func.func @empty() {
  return
}
func.func private @declared()

// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="memory-budget-ratio=9 use-runtime-estimates=true comm-time-permille=1000 extra-overlap-permille=0" \
// RUN:   | FileCheck %s --check-prefix=ONE
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="memory-budget-ratio=9 use-runtime-estimates=true comm-time-permille=1000 extra-overlap-permille=500" \
// RUN:   | FileCheck %s --check-prefix=TWO
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="memory-budget-ratio=9 use-runtime-estimates=true comm-time-permille=2000 extra-overlap-permille=0" \
// RUN:   | FileCheck %s --check-prefix=TWO
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="memory-budget-ratio=9 use-runtime-estimates=true comm-time-permille=2000 compute-time-permille=2000 extra-overlap-permille=0" \
// RUN:   | FileCheck %s --check-prefix=ONE
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="memory-budget-ratio=9 group-limit-nodes=0" --remarks-filter=comm-reorder.* 2>&1 >/dev/null \
// RUN:   | FileCheck %s --check-prefix=LIMIT
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="memory-budget-ratio=9 use-runtime-estimates=true comm-time-permille=1000 extra-overlap-permille=0 group-with-collectives=true" \
// RUN:   | FileCheck %s --check-prefix=WITH
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="memory-budget-ratio=9 use-runtime-estimates=true comm-time-permille=1000 extra-overlap-permille=0" \
// RUN:   | FileCheck %s --check-prefix=WITHOUT
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="memory-budget-ratio=9 move-limit=1" --remarks-filter=comm-reorder.* 2>&1 >/dev/null \
// RUN:   | FileCheck %s --check-prefix=MOVES
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="memory-budget-ratio=9 prefetch-limit-nodes=2" --remarks-filter=comm-reorder.* 2>&1 >/dev/null \
// RUN:   | FileCheck %s --check-prefix=PREFETCH
// RUN: comm-opt %s --comm-sink-waits-preserving-peak-memory="memory-budget-ratio=9 prefetch-limit-nodes=0" --remarks-filter=comm-sink.* 2>&1 >/dev/null \
// RUN:   | FileCheck %s --check-prefix=STAYS
// RUN: comm-opt %s --comm-sink-waits-preserving-peak-memory="memory-budget-ratio=9 use-runtime-estimates=true comm-time-permille=1000 extra-overlap-permille=0" \
// RUN:   | FileCheck %s --check-prefix=SINKONE
// RUN: comm-opt %s --comm-sink-waits-preserving-peak-memory="memory-budget-ratio=9 use-runtime-estimates=true comm-time-permille=1000" \
// RUN:   | FileCheck %s --check-prefix=SINKTWO

comm.group @dp #comm.iota<[1, 4]>

// Tests what counts as hidden: a collective of 300 ns needs more than 300 ns of compute, half as much again with the
// extra overlap, twice as much where its time counts twice; one compute of 400 ns, or two.
// ONE-LABEL: func @hidden_by
// ONE: compute "b"
// ONE-NEXT: comm.all_reduce
// ONE-NEXT: compute "c"
// TWO-LABEL: func @hidden_by
// TWO: compute "a"
// TWO-NEXT: comm.all_reduce
// TWO-NEXT: compute "b"
// LIMIT: "'comm.all_reduce' passed 3 operations;
// MOVES: "'comm.all_reduce' passed 3 operations;
// Tests that each collective passes no more operations than the prefetch limit says.
// PREFETCH: "'comm.all_reduce' passed 2 operations; {{.*}}; stopped by prefetch limit: 2 operations"
// STAYS-NOT: passed
// STAYS: "'comm.wait' stayed; {{.*}}prefetch limit: 0 operations"
// STAYS-NOT: passed
func.func @hidden_by(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %a = comm.compute "a"(%x) {comm.cost = #comm.cost<time = 400>} : (tensor<8xf32>) -> tensor<8xf32>
  %b = comm.compute "b"(%a) {comm.cost = #comm.cost<time = 400>} : (tensor<8xf32>) -> tensor<8xf32>
  %c = comm.compute "c"(%b) {comm.cost = #comm.cost<time = 400>} : (tensor<8xf32>) -> tensor<8xf32>
  %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  return %c, %r : tensor<8xf32>, tensor<8xf32>
}

// Tests the same of a wait.
// SINKONE-LABEL: func @hidden_by_what_follows
// SINKONE: compute "a"
// SINKONE-NEXT: comm.wait
// SINKONE-NEXT: compute "b"
// SINKTWO-LABEL: func @hidden_by_what_follows
// SINKTWO: compute "b"
// SINKTWO-NEXT: comm.wait
// SINKTWO-NEXT: compute "c"
func.func @hidden_by_what_follows(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  %a = comm.compute "a"(%x) {comm.cost = #comm.cost<time = 400>} : (tensor<8xf32>) -> tensor<8xf32>
  %b = comm.compute "b"(%a) {comm.cost = #comm.cost<time = 400>} : (tensor<8xf32>) -> tensor<8xf32>
  %c = comm.compute "c"(%b) {comm.cost = #comm.cost<time = 400>} : (tensor<8xf32>) -> tensor<8xf32>
  return %c, %r : tensor<8xf32>, tensor<8xf32>
}

// Tests that a start takes another one along that it depends on if it is told to, and that a group takes along no more
// operations than it may, and no more collectives are moved than allowed. The first all-reduce, hidden behind "d", has no
// reason to move; the second one, of 2000 ns, would be hidden better in front of everything.
// WITH-LABEL: func @chained
// WITH-NEXT: comm.all_reduce sum
// WITH-NEXT: comm.wait
// WITH-NEXT: compute "scale"
// WITH-NEXT: comm.all_reduce max
// WITH-NEXT: compute "a"
// WITHOUT-LABEL: func @chained
// WITHOUT-NEXT: compute "a"
// WITHOUT-NEXT: compute "b"
// WITHOUT-NEXT: comm.all_reduce sum
// WITHOUT-NEXT: comm.wait
// WITHOUT-NEXT: compute "scale"
// WITHOUT-NEXT: comm.all_reduce max
// WITHOUT-NEXT: compute "d"
// LIMIT: "'comm.all_reduce' stayed; {{.*}}; group limit: 0 operations"
// MOVES: "'comm.all_reduce' passed 2 operations;
// MOVES: "'comm.all_reduce' stayed; {{.*}}; move limit: 1 collective"
func.func @chained(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %a = comm.compute "a"(%x) {comm.cost = #comm.cost<time = 400>} : (tensor<8xf32>) -> tensor<8xf32>
  %b = comm.compute "b"(%a) {comm.cost = #comm.cost<time = 400>} : (tensor<8xf32>) -> tensor<8xf32>
  %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %d = comm.compute "d"(%x) {comm.cost = #comm.cost<time = 400>} : (tensor<8xf32>) -> tensor<8xf32>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  %s = comm.compute "scale"(%r) {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>) -> tensor<8xf32>
  %g = comm.all_reduce max %s on @dp {comm.cost = #comm.cost<time = 2000>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %t = comm.wait %g : !comm.future<tensor<8xf32>>
  return %b, %d, %t : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

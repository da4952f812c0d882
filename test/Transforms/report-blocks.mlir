// Tests that a report compares each block with itself, also if passes move, inline or copy the operation around it.

// RUN: comm-opt %s --reorder-comm-overlap="memory-budget-ratio=1 report-file=%t.json" -o %t.mlir 2>&1 | FileCheck %s
// RUN: FileCheck %s --check-prefix=JSON < %t.json
// RUN: FileCheck %s --check-prefix=OUTPUT < %t.mlir
// RUN: comm-opt %s --reorder-comm-overlap="passes=func.func(canonicalize) report-file=%t.json" -o /dev/null 2>&1 | FileCheck %s --check-prefix=INLINED
// RUN: FileCheck %s --check-prefix=INLINED-JSON < %t.json
// RUN: comm-opt %s --reorder-comm-overlap="passes=func.func(scf-for-loop-peeling)" -o /dev/null 2>&1 | FileCheck %s --check-prefix=COPIED

comm.group @world #comm.iota<[1, 16]>
comm.group @pairs #comm.iota<[8, 2]>

// Tests that the schedule moves the second branch in front of the first, and each keeps its name.
// OUTPUT-LABEL: func.func @swapped
// OUTPUT-NOT: commsched_reported_name
// OUTPUT: min
// OUTPUT: max
// OUTPUT-LABEL: func.func @inlined
// OUTPUT-NOT: commsched_reported_name
// CHECK-LABEL: {{^}}swapped.0: 2 operations
// CHECK: makespan {{ *}}100 us {{ *}}100 us
// CHECK: lower bound {{ *}}100 us {{.*}} at most 0.00 %
// CHECK: all_reduce @world {{ *}}1 {{ *}}1
// CHECK-LABEL: {{^}}swapped.1: 3 operations
// CHECK: makespan {{ *}}420 us {{ *}}420 us
// CHECK: lower bound {{ *}}420 us {{.*}} at most 0.00 %
// CHECK: all_reduce @pairs {{ *}}1 {{ *}}1
// CHECK-LABEL: {{^}}swapped: 4 operations
// CHECK: makespan {{ *}}1.02 ms {{ *}}600 us
// JSON: "functions": [
// JSON: "exposed_ns": {
// JSON-NEXT: "after": 100000,
// JSON-NEXT: "before": 100000
// JSON: "name": "swapped.0"
// JSON: "per_collective": [
// JSON: "exposed_ns": {
// JSON-NEXT: "after": 100000,
// JSON-NEXT: "before": 100000
// JSON: "exposed_ns": {
// JSON-NEXT: "after": 20000,
// JSON-NEXT: "before": 20000
// JSON: "name": "swapped.1"
// JSON-NOT: lost_blocks
// JSON-NOT: new_blocks
// JSON: "passes": [
// JSON: "function": "swapped.0",
// JSON: "before": 100000
// JSON: "function": "swapped.1",
// JSON: "before": 420000
func.func @swapped(%a: tensor<64xf32>, %b: tensor<64xf32>, %c: i1, %d: i1) -> (tensor<64xf32>, tensor<64xf32>) {
  %f = comm.all_reduce sum %a on @world {comm.cost = #comm.cost<time = 500000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  %w = comm.wait %f : !comm.future<tensor<64xf32>>
  %r1 = scf.if %c -> (tensor<64xf32>) {
    %g = comm.all_reduce max %w on @world {comm.cost = #comm.cost<time = 100000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
    %x = comm.wait %g : !comm.future<tensor<64xf32>>
    scf.yield %x : tensor<64xf32>
  } else {
    scf.yield %w : tensor<64xf32>
  }
  %r2 = scf.if %d -> (tensor<64xf32>) {
    %k = comm.compute "k"(%b) {comm.cost = #comm.cost<time = 400000>} : (tensor<64xf32>) -> tensor<64xf32>
    %h = comm.all_reduce min %k on @pairs {comm.cost = #comm.cost<time = 20000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
    %y = comm.wait %h : !comm.future<tensor<64xf32>>
    scf.yield %y : tensor<64xf32>
  } else {
    scf.yield %b : tensor<64xf32>
  }
  return %r1, %r2 : tensor<64xf32>, tensor<64xf32>
}

// Tests a block that a pass inlines into the body: the report says so, and compares it with no other block.
// INLINED: {{^}}inlined.1: 2 operations
// INLINED-NEXT: before
// INLINED-NEXT: makespan {{ *}}30.0 us {{ *}}30.0 us
// INLINED-NOT: {{^}}inlined.0: {{[0-9]}}
// INLINED: {{^}}inlined.0: a pass has removed or rebuilt this block; it is not compared
// INLINED-NOT: {{^}}inlined.new
// INLINED: {{^}}inlined as a whole: makespan 40.0 us -> 40.0 us, peak
// INLINED-JSON: "lost_blocks": [
// INLINED-JSON-NEXT: "inlined.0"
// INLINED-JSON-NEXT: ]
func.func @inlined(%a: tensor<64xf32>, %c: i1) -> (tensor<64xf32>, tensor<64xf32>) {
  %true = arith.constant true
  %r = scf.if %true -> (tensor<64xf32>) {
    %f = comm.all_reduce sum %a on @world {comm.cost = #comm.cost<time = 10000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
    %x = comm.wait %f : !comm.future<tensor<64xf32>>
    scf.yield %x : tensor<64xf32>
  } else {
    scf.yield %a : tensor<64xf32>
  }
  %s = scf.if %c -> (tensor<64xf32>) {
    %f = comm.all_reduce max %a on @world {comm.cost = #comm.cost<time = 30000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
    %x = comm.wait %f : !comm.future<tensor<64xf32>>
    scf.yield %x : tensor<64xf32>
  } else {
    scf.yield %a : tensor<64xf32>
  }
  return %r, %s : tensor<64xf32>, tensor<64xf32>
}

// Tests a block of which a pass makes a copy: neither of the two counts as the block from before.
// COPIED-NOT: {{^}}copied.0: {{[0-9]}}
// COPIED: {{^}}copied.0: a pass has removed or rebuilt this block; it is not compared
// COPIED-NEXT: {{^}}copied.new0: a pass has made this block; it is not compared
// COPIED-NEXT: {{^}}copied.new1: a pass has made this block; it is not compared
// COPIED-NEXT: {{^}}copied as a whole: makespan {{[0-9.]+ us -> [0-9.]+ us}}, peak
func.func @copied(%a: tensor<64xf32>, %n: index) -> tensor<64xf32> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %r = scf.for %i = %c0 to %n step %c2 iter_args(%x = %a) -> (tensor<64xf32>) {
    %f = comm.all_reduce sum %x on @world {comm.cost = #comm.cost<time = 10000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
    %y = comm.wait %f : !comm.future<tensor<64xf32>>
    scf.yield %y : tensor<64xf32>
  }
  return %r : tensor<64xf32>
}

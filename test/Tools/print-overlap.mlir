// Tests the text that --comm-print-overlap prints: a table of each pass, and the operations with bars beside collectives.
// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-raise,comm-sink-waits" --comm-print-overlap -o /dev/null 2>&1 | FileCheck %s
// RUN: comm-opt %s --comm-raise --comm-sink-waits --comm-print-overlap=%t.txt -o /dev/null && FileCheck %s < %t.txt
// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-raise,comm-sink-waits overlap-file=%t.2.txt" -o /dev/null && cmp %t.txt %t.2.txt
// RUN: comm-opt %s --comm-print-overlap=- -o /dev/null 2>&1 | FileCheck %s --check-prefix=GIVEN
// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-bucket" --comm-print-overlap -o /dev/null 2>&1 | FileCheck %s --check-prefix=MERGED
// RUN: not comm-opt %s --comm-raise --comm-print-overlap= -o /dev/null 2>&1 | FileCheck %s --check-prefix=EMPTY
// RUN: not comm-opt %s --comm-raise --comm-print-overlap=%t.none/x.txt -o /dev/null 2>&1 | FileCheck %s --check-prefix=FOLDER

// EMPTY: --comm-print-overlap: expected a value behind '='
// FOLDER: error: cannot write '{{.*}}x.txt'

comm.group @dp #comm.iota<[1, 8]>

// Each pass has a table of its own, and the order is that behind the last one. The gathers take turns: the second one runs
// from 200 ns to 500 ns, beside the second product, so that the block takes 200 + 300 + 50 ns.
// CHECK: comm-raise of step: moved 1 of 2, makespan 850 ns -> 550 ns, exposed 500 ns -> 200 ns, peak
// CHECK-NEXT: {{^  node  *kind  *takes  *compute  *exposed before  *after  *improvement  *moves  *taken along  *passed  *hidden by  *limiting factor$}}
// CHECK-NEXT: {{^  first  *all_gather  *200 ns  *0 ns  *200 ns  *200 ns  *0 ns  *0  }}
// CHECK-NEXT: {{^  second  *all_gather  *300 ns  *300 ns  *300 ns  *0 ns  *300 ns  *3  *0  *3: comm.wait, mm, mm  *2: mm, mm  *end of the block$}}
// CHECK-NEXT: comm-sink-waits of step: moved 2 of 2
// CHECK-NEXT: {{^  node  *kind}}
// CHECK-NEXT: {{^  first_wait  *wait .*  2  *0  *2: view, mm  }}
// CHECK: step: 8 operations, estimated 550 ns, exposed 200 ns
// CHECK-NEXT: {{^ *0: comm.all_gather first of 128 B on @dp \(200 ns at 0 ns, exposed 100 ns\)$}}
// CHECK-NEXT: {{^ *1: comm.all_gather second of 128 B on @dp \(300 ns at 0 ns, exposed 100 ns\)$}}
// CHECK-NEXT: {{^ *2: \| mm one \(100 ns at 0 ns\)$}}
// CHECK-NEXT: {{^ *3: \| view four}}
// CHECK-NEXT: {{^ *4: comm.wait first_wait}}
// CHECK-NEXT: {{^ *5: \| mm two}}
// CHECK-NEXT: {{^ *6: comm.wait second_wait}}
// CHECK-NEXT: {{^ *7: mm three \(50 ns at 500 ns\)$}}

// In the given order, no computation is beside a collective, and no pass ran.
// GIVEN-NOT: comm-raise
// GIVEN: step: 8 operations, estimated 850 ns, exposed 500 ns
// GIVEN-NEXT: {{^ *0: comm.all_gather first of 128 B on @dp \(200 ns at 0 ns, exposed 200 ns\)$}}
// GIVEN-NEXT: {{^ *1: comm.wait first_wait \(0 ns at 0 ns, exposed 200 ns\)$}}
// GIVEN-NEXT: {{^ *2: mm one \(100 ns at 200 ns\)$}}
// GIVEN-NOT: |

// A merged collective is named by its first member.
// MERGED: comm.all_gather first and 1 more of 256 B on @dp
func.func @step(%a: tensor<4xf32>, %b: tensor<4xf32>, %x: tensor<32xf32>) -> (tensor<32xf32>, tensor<32xf32>, tensor<32xf32>) {
  %f = comm.all_gather %a on @dp {comm.cost = #comm.cost<time = 200>} : (tensor<4xf32>) -> !comm.future<tensor<32xf32>> loc("first")
  %w = comm.wait %f : !comm.future<tensor<32xf32>> loc("first_wait")
  %1 = comm.compute "mm"(%x) {comm.cost = #comm.cost<time = 100>} : (tensor<32xf32>) -> tensor<32xf32> loc("one")
  %2 = comm.compute "mm"(%w) {comm.cost = #comm.cost<time = 200>} : (tensor<32xf32>) -> tensor<32xf32> loc("two")
  %g = comm.all_gather %b on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<4xf32>) -> !comm.future<tensor<32xf32>> loc("second")
  %v = comm.wait %g : !comm.future<tensor<32xf32>> loc("second_wait")
  %3 = comm.compute "mm"(%v) {comm.cost = #comm.cost<time = 50>} : (tensor<32xf32>) -> tensor<32xf32> loc("three")
  %4 = comm.compute "view"(%1) aliases [0] : (tensor<32xf32>) -> tensor<32xf32> loc("four")
  return %2, %3, %4 : tensor<32xf32>, tensor<32xf32>, tensor<32xf32>
}

// Tests what --comm-explain says of single collectives: by name, by position, of a merged one, and of names that do not exist.
// RUN: comm-opt %s --reorder-comm-overlap=bucketing=false --comm-explain=@sum -o /dev/null 2>&1 | FileCheck %s --check-prefix=SUM
// RUN: comm-opt %s --reorder-comm-overlap="explain=sum bucketing=false" -o /dev/null 2>&1 | FileCheck %s --check-prefix=SUM
// RUN: comm-opt %s --reorder-comm-overlap --comm-explain=explain.mlir:62 -o /dev/null 2>&1 | FileCheck %s --check-prefix=LINE
// RUN: comm-opt %s --reorder-comm-overlap --comm-explain=Tools/explain.mlir:62:8 -o /dev/null 2>&1 | FileCheck %s --check-prefix=LINE
// RUN: comm-opt %s --reorder-comm-overlap --comm-explain=second -o /dev/null 2>&1 | FileCheck %s --check-prefix=MERGED
// RUN: comm-opt %s --comm-explain=behind -o /dev/null 2>&1 | FileCheck %s --check-prefix=GIVEN
// RUN: not comm-opt %s --reorder-comm-overlap --comm-explain=behnd -o /dev/null 2>&1 | FileCheck %s --check-prefix=NEAR
// RUN: not comm-opt %s --reorder-comm-overlap --comm-explain=nothing_like_it -o /dev/null 2>&1 | FileCheck %s --check-prefix=FAR
// RUN: not comm-opt %s --reorder-comm-overlap --comm-explain= -o /dev/null 2>&1 | FileCheck %s --check-prefix=EMPTY
// RUN: echo "module {}" | not comm-opt - --reorder-comm-overlap --comm-explain=sum -o /dev/null 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not comm-opt %s --pass-pipeline="func.func(comm-schedule)" --comm-explain=sum -o /dev/null 2>&1 | FileCheck %s --check-prefix=ROOT

// EMPTY: --comm-explain: expected a value behind '='

comm.group @dp #comm.iota<[1, 8]>

// The sum runs beside the product that does not need it.
// SUM-LABEL: sum in step: all_reduce of 32 B on @dp, takes 300 ns
// SUM-NEXT: place {{ *}}operation 2 of 5; before 2 of 5
// SUM-NEXT: issued {{ *}}at 100 ns
// SUM-NEXT: runs {{ *}}100 ns to 400 ns
// SUM-NEXT: needed {{ *}}at 150 ns
// SUM-NEXT: hidden by {{ *}}50 ns of computation: other (50 ns)
// SUM-NEXT: memory {{ *}}at most {{[0-9]+}} B live while it is in flight, limit {{[0-9]+}} B
// SUM-NEXT: exposed {{ *}}250 ns, before 300 ns
// SUM-NEXT: limited by {{ *}}data dependence on producer
// SUM-NEXT: may help {{ *}}give that operation less work, or split it so that the collective can begin earlier
// SUM-NOT: {{.}}
func.func @step(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %p = comm.compute "mm"(%x) {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>) -> tensor<8xf32> loc("producer")
  %f = comm.all_reduce sum %p on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>> loc("sum")
  %s = comm.wait %f : !comm.future<tensor<8xf32>> loc("sum_wait")
  %o = comm.compute "mm"(%x) {comm.cost = #comm.cost<time = 50>} : (tensor<8xf32>) -> tensor<8xf32> loc("other")
  %u = comm.compute "mm"(%s) {comm.cost = #comm.cost<time = 50>} : (tensor<8xf32>) -> tensor<8xf32> loc("user")
  return %o, %u : tensor<8xf32>, tensor<8xf32>
}

// GIVEN-LABEL: behind in queue: all_gather
// GIVEN: issued {{ *}}at 0 ns; waits 80 ns for its lane behind front
// GIVEN-NEXT: runs {{ *}}80 ns to 180 ns
// GIVEN: hidden by {{ *}}100 ns of computation: work (100 ns)
// GIVEN: exposed {{ *}}0 ns, before 0 ns
// GIVEN-NEXT: slack {{ *}}may end 820 ns later until the block takes longer
func.func @queue(%a: tensor<8xf32>, %b: tensor<8xf32>, %x: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) {
  %f = comm.all_gather %a on @dp {comm.cost = #comm.cost<time = 80>} : (tensor<8xf32>) -> !comm.future<tensor<64xf32>> loc("front")
  %g = comm.all_gather %b on @dp {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>) -> !comm.future<tensor<64xf32>> loc("behind")
  %w = comm.compute "mm"(%x) {comm.cost = #comm.cost<time = 1000>} : (tensor<64xf32>) -> tensor<64xf32> loc("work")
  %p = comm.wait %f : !comm.future<tensor<64xf32>>
  %q = comm.wait %g : !comm.future<tensor<64xf32>>
  return %p, %q, %w : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
}

// LINE-LABEL: explain.mlir:62:8 in place: all_gather
// LINE: needed
func.func @place(%a: tensor<8xf32>) -> tensor<64xf32> {
  // The next line is the one that is asked for.
  // It holds the only collective without a name.
  // All others have one.
  //
  //
  %f = comm.all_gather %a on @dp : (tensor<8xf32>) -> !comm.future<tensor<64xf32>>
  %p = comm.wait %f : !comm.future<tensor<64xf32>>
  return %p : tensor<64xf32>
}

// Small gathers take longer one by one.
// MERGED-LABEL: first in merge: all_gather of 512 B on @dp
// MERGED-NEXT: merged {{ *}}2 collectives: first, second
// MERGED-NEXT: place {{ *}}operation {{[0-9]+}} of {{[0-9]+}}; before 1, 2 of {{[0-9]+}}
func.func @merge(%a: tensor<8xf32>, %b: tensor<8xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %f = comm.all_gather %a on @dp : (tensor<8xf32>) -> !comm.future<tensor<64xf32>> loc("first")
  %g = comm.all_gather %b on @dp : (tensor<8xf32>) -> !comm.future<tensor<64xf32>> loc("second")
  %p = comm.wait %f : !comm.future<tensor<64xf32>>
  %q = comm.wait %g : !comm.future<tensor<64xf32>>
  return %p, %q : tensor<64xf32>, tensor<64xf32>
}

// NEAR: error: no collective is called 'behnd' in the result; did you mean 'behind'?
// FAR: error: no collective is called 'nothing_like_it' in the result; the names are {{.*}}explain.mlir:62:8, behind, first, front, second, sum
// NONE: error: no collective is called 'sum' in the result; there are no collectives
// ROOT: error: --comm-report, --comm-timeline, --comm-explain, --comm-print-overlap, --comm-search-log and --comm-pareto measure modules; expected a 'builtin.module', got a 'func.func'

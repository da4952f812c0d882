// Tests that the default objective plays the answer and the input with other times of collectives, that the report has
// the times, the bounds and the regret, and that it says what was minimized.

// RUN: comm-opt %s --reorder-comm-overlap="bucketing=false memory-budget-ratio=1" --comm-report=%t.json -o /dev/null 2>&1 | FileCheck %s --check-prefix=TABLE
// RUN: FileCheck %s --check-prefix=JSON --input-file=%t.json
// RUN: comm-opt %s --reorder-comm-overlap="bucketing=false memory-budget-ratio=1 objective=regret" --comm-report=%t.regret.json -o /dev/null 2>&1 | FileCheck %s --check-prefix=TABLE
// RUN: FileCheck %s --check-prefix=REGRET --input-file=%t.regret.json
// RUN: comm-opt %s --reorder-comm-overlap="bucketing=false memory-budget-ratio=1 objective=makespan" --comm-report=%t.makespan.json -o /dev/null 2>&1 | FileCheck %s --check-prefix=MAKESPAN
// RUN: FileCheck %s --check-prefix=ONE --input-file=%t.makespan.json

// Tests that what cannot be done for other scales is said.
// RUN: comm-opt %s --reorder-comm-overlap="effort=0" --comm-report=%t.first.json -o /dev/null 2>&1 | FileCheck %s --check-prefix=MAKESPAN
// RUN: FileCheck %s --check-prefix=ONE --input-file=%t.first.json
// RUN: comm-opt %s --comm-schedule="objective=regret effort=0" -o /dev/null 2>&1 | FileCheck %s --check-prefix=FIRST
// RUN: not comm-opt %s --comm-schedule="objective=regret limit=arena" 2>&1 | FileCheck %s --check-prefix=ARENA
// RUN: comm-opt %s --reorder-comm-overlap="limit=arena" --comm-report=%t.arena.json -o /dev/null 2>&1 | FileCheck %s --check-prefix=MAKESPAN
// RUN: FileCheck %s --check-prefix=ONE --input-file=%t.arena.json

// FIRST: warning: the makespan was minimized instead of the regret: only a first answer is asked for
// ARENA: error: 'objective=regret' has no effect with 'limit=arena'

comm.group @dp #comm.iota<[1, 8]>

// By hand: two gathers of k times 100 us, each with a product of 200 us behind it. As given, everything runs in turn. The
// answer hides the second gather, also if it takes twice as long, and no order hides the first.
// No answer takes less at any of the scales. Between them less is known, so further scales are played until little is
// gained: at 1.674 the answer takes 567.4 us, and the bound at 1.5 is 550 us; so is 1.674 / 1.75 of the bound at 1.75.
// TABLE: makespan{{ +}}600 us{{ +}}500 us  -16.7 %
// TABLE: other costs   at most 3.17 % from optimal if collectives take 0.75 to 2.00 times as long, 0.00 % at the 9 scales that were played; no certificate
// MAKESPAN-NOT: other costs

// JSON: "objective": "robust",
// JSON: "regret_ppm": 31621,
// JSON: "scales": [
// JSON-NEXT: {
// JSON-NEXT: "collectives_permille": 750,
// JSON-NEXT: "lower_bound_ns": 475000,
// JSON-NEXT: "makespan_ns": {
// JSON-NEXT: "after": 475000,
// JSON-NEXT: "before": 550000
// JSON: "collectives_permille": 875,
// JSON-NEXT: "lower_bound_ns": 487500,
// JSON: "collectives_permille": 1000,
// JSON: "after": 500000,
// JSON-NEXT: "before": 600000
// JSON: "collectives_permille": 1250,
// JSON: "collectives_permille": 1500,
// JSON: "collectives_permille": 2000,
// JSON-NEXT: "lower_bound_ns": 600000,
// JSON-NEXT: "makespan_ns": {
// JSON-NEXT: "after": 600000,
// JSON-NEXT: "before": 800000
// REGRET: "objective": "regret",
// ONE: "objective": "makespan",
// ONE-NOT: "scales"

func.func @step(%x: tensor<64xf32>, %w1: tensor<8xf32>, %w2: tensor<8xf32>) -> tensor<64xf32> {
  %f1 = comm.all_gather %w1 on @dp {comm.cost = #comm.cost<time = 100000>} : (tensor<8xf32>) -> !comm.future<tensor<64xf32>>
  %g1 = comm.wait %f1 : !comm.future<tensor<64xf32>>
  %a = comm.compute "matmul"(%x, %g1) {comm.cost = #comm.cost<time = 200000>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %f2 = comm.all_gather %w2 on @dp {comm.cost = #comm.cost<time = 100000>} : (tensor<8xf32>) -> !comm.future<tensor<64xf32>>
  %g2 = comm.wait %f2 : !comm.future<tensor<64xf32>>
  %b = comm.compute "matmul"(%a, %g2) {comm.cost = #comm.cost<time = 200000>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %b : tensor<64xf32>
}

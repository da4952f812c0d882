// RUN: comm-opt %s --reorder-comm-overlap="preset=safe" 2>/dev/null | FileCheck %s --check-prefix=SAFE
// RUN: comm-opt %s --reorder-comm-overlap="preset=balanced" 2>/dev/null | FileCheck %s --check-prefix=BALANCED

// Tests that a preset is short for other options, and that those which are given as well win.
// RUN: comm-opt %s --reorder-comm-overlap="preset=safe" -o %t.preset.mlir 2>/dev/null
// RUN: comm-opt %s --reorder-comm-overlap="collective-order=program bucketing=false memory-budget-ratio=0" -o %t.options.mlir 2>/dev/null
// RUN: diff %t.preset.mlir %t.options.mlir
// RUN: comm-opt %s --reorder-comm-overlap="bucketing=true preset=safe" -o %t.preset.mlir 2>/dev/null
// RUN: comm-opt %s --reorder-comm-overlap="collective-order=program memory-budget-ratio=0" -o %t.options.mlir 2>/dev/null
// RUN: diff %t.preset.mlir %t.options.mlir
// RUN: comm-opt %s --reorder-comm-overlap="preset=fast" --comm-search-log=%t.fast.jsonl -o /dev/null 2>/dev/null
// RUN: FileCheck %s --check-prefix=FAST --input-file=%t.fast.jsonl
// RUN: comm-opt %s --reorder-comm-overlap="preset=fast effort=1000" --comm-search-log=%t.given.jsonl -o /dev/null 2>/dev/null
// RUN: FileCheck %s --check-prefix=GIVEN --input-file=%t.given.jsonl
// RUN: not comm-opt %s --reorder-comm-overlap="preset=bold" 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not comm-opt %s --reorder-comm-overlap="preset=fast passes=comm-raise" 2>&1 | FileCheck %s --check-prefix=UNREAD
comm.group @dp #comm.iota<[1, 8]>

// Both gathers are small: one message for both is faster, and the safe preset keeps two.
// SAFE: comm.all_gather %arg1 on
// SAFE: comm.all_gather %arg2 on
// BALANCED: comm.all_gather %arg{{[12]}}, %arg{{[12]}} on
// BALANCED-NOT: comm.all_gather
// FAST: "effort_steps":0
// GIVEN: "effort_steps":1000
// UNKNOWN: error: reorder-comm-overlap: preset=bold: expected balanced, safe or fast{{$}}
// UNREAD: error: reorder-comm-overlap: 'effort=0' has no effect with 'passes=comm-raise'
func.func @step(%x: tensor<64x64xf32>, %w1: tensor<8x64xf32>, %w2: tensor<8x64xf32>) -> tensor<64x64xf32> {
  %f1 = comm.all_gather %w1 on @dp : (tensor<8x64xf32>) -> !comm.future<tensor<64x64xf32>>
  %g1 = comm.wait %f1 : !comm.future<tensor<64x64xf32>>
  %f2 = comm.all_gather %w2 on @dp : (tensor<8x64xf32>) -> !comm.future<tensor<64x64xf32>>
  %g2 = comm.wait %f2 : !comm.future<tensor<64x64xf32>>
  %y = comm.compute "product"(%x, %g1, %g2) {comm.cost = #comm.cost<time = 10000>} : (tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %y : tensor<64x64xf32>
}

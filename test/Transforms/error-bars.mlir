// Tests that a profile with error bars gives makespan and gain as intervals, and says how its costs are known; and that
// without error bars the report is what it was.

// RUN: %python %S/Inputs/error_bars_profile.py %commsched_src_root/machines/h100-sxm.json > %t.bars.json
// RUN: %python %S/Inputs/error_bars_profile.py --without-bars %commsched_src_root/machines/h100-sxm.json > %t.plain.json
// RUN: comm-opt %s --reorder-comm-overlap="memory-budget-ratio=1.0 bucketing=false" --comm-machine=%t.bars.json --comm-report=%t.json -o %t.bars.mlir 2>&1 | FileCheck %s
// RUN: FileCheck %s --check-prefix=JSON --input-file=%t.json
// RUN: comm-opt %s --reorder-comm-overlap="memory-budget-ratio=1.0 bucketing=false" --comm-machine=%t.plain.json --comm-report=%t.plain.report -o %t.plain.mlir 2>&1 \
// RUN:   | FileCheck %s --check-prefix=PLAIN --implicit-check-not="error bars" --implicit-check-not=analytic
// RUN: not grep -e error_bars -e cost_lo -e cost_source %t.plain.report
// RUN: diff %t.bars.mlir %t.plain.mlir

comm.group @dp #comm.iota<[1, 8]>

// By hand. The gathers of 1 MiB take 90 (80 to 110) us, the product 100 (95 to 105) us, "mul" 10 us as given. As written:
// 90 + 100 + 90 + 10 = 290 (265 to 335) us. The schedule hides the second gather behind the product, which is longer
// than the gather except if collectives are slow and operations fast: 90 + 100 + 10 = 200 (80 + 95 + 10 = 185 to
// 110 + 110 + 10 = 230; all high: 110 + 110 + 10 = 230, for the gather of 110 ends after the product of 105).
// The gain: 90 us; all low 265 - 185 = 80, all high 335 - 230 = 105; slow collectives 325 - 230 = 95; slow operations
// 275 - 195 = 80.
// CHECK: step: 6 operations, 2 collectives
// CHECK: makespan            290 us      200 us  -31.0 %
// CHECK-NEXT: error bars    before 265 us to 335 us, after 185 us to 230 us
// CHECK-NEXT: gain 90.0 us, 80.0 us to 105 us when both orders cost alike
// CHECK-NEXT: costs         1 given, 3 measured, 0 scaled, 0 analytic, 0 guessed; 3 with error bars
// CHECK-NEXT: 2 collectives are priced by a table with the flag 'skew'
// PLAIN: makespan            290 us      200 us  -31.0 %
// PLAIN-NEXT: exposed

// JSON: "error_bars": {
// JSON-NEXT: "cost_sources": {
// JSON-NEXT: "analytic": 0,
// JSON-NEXT: "given": 1,
// JSON-NEXT: "guessed": 0,
// JSON-NEXT: "measured": 3,
// JSON-NEXT: "scaled": 0
// JSON-NEXT: },
// JSON-NEXT: "costs_with_error_bars": 3,
// JSON-NEXT: "flags": {
// JSON-NEXT: "skew": 2
// JSON-NEXT: },
// JSON-NEXT: "gain_ns": {
// JSON-NEXT: "hi": 105000,
// JSON-NEXT: "lo": 80000,
// JSON-NEXT: "value": 90000
// JSON: "makespan_ns": {
// JSON-NEXT: "after": {
// JSON-NEXT: "hi": 230000,
// JSON-NEXT: "lo": 185000,
// JSON-NEXT: "value": 200000
// JSON-NEXT: },
// JSON-NEXT: "before": {
// JSON-NEXT: "hi": 335000,
// JSON-NEXT: "lo": 265000,
// JSON-NEXT: "value": 290000
// JSON: "slow_collectives": {
// JSON-NEXT: "after": 230000,
// JSON-NEXT: "before": 325000
// JSON: "per_collective": [
// JSON: "cost_hi_ns": 110000,
// JSON-NEXT: "cost_lo_ns": 80000,
// JSON-NEXT: "cost_ns": 90000,
// JSON-NEXT: "cost_source": "measured",
// JSON: "flags": [
// JSON-NEXT: "skew"
// JSON: "samples": 20
func.func @step(%x: tensor<256x256xf32>, %w1: tensor<32768xf32>, %w2: tensor<32768xf32>) -> tensor<256x256xf32> {
  %f1 = comm.all_gather %w1 on @dp : (tensor<32768xf32>) -> !comm.future<tensor<262144xf32>>
  %full1 = comm.wait %f1 : !comm.future<tensor<262144xf32>>
  %h = comm.compute "product"(%x, %full1) : (tensor<256x256xf32>, tensor<262144xf32>) -> tensor<256x256xf32>
  %f2 = comm.all_gather %w2 on @dp : (tensor<32768xf32>) -> !comm.future<tensor<262144xf32>>
  %full2 = comm.wait %f2 : !comm.future<tensor<262144xf32>>
  %y = comm.compute "mul"(%h, %full2) {comm.cost = #comm.cost<time = 10000>} : (tensor<256x256xf32>, tensor<262144xf32>) -> tensor<256x256xf32>
  return %y : tensor<256x256xf32>
}

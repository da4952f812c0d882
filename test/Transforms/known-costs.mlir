// Tests that the report says which share of the time is known from what. Of two gathers, one is as large as a point of the
// machine's table, and the other lies between two points. One product is in the table of operations, one is priced by its
// work, and of "mystery" only the operands are known.
// RUN: %python -c "import json, sys; m = json.load(open(sys.argv[1])); \
// RUN:   m['collectives'] = [{'kind': 'all_gather', 'ranks': 8, 'nodes': 1, \
// RUN:                        'points': [{'bytes': b, 'ns': b // 2} for b in (131072, 524288)]}]; \
// RUN:   m['ops'] = [{'name': 'aten.mm', 'shapes': ['64x64', '64x64'], 'ns': 40000}]; json.dump(m, sys.stdout)" \
// RUN:   %S/../../machines/h100-sxm.json > %t.machine.json
// RUN: comm-opt %s --comm-machine=%t.machine.json --comm-report=%t.json -o /dev/null 2>&1 | FileCheck %s --check-prefix=TABLE
// RUN: FileCheck %s --check-prefix=JSON --input-file=%t.json
// JSON: "cost_times_ns": {
// JSON-NEXT: "curve": 131072,
// JSON-NEXT: "given": 5000,
// JSON-NEXT: "measured": 105536,
// JSON-NEXT: "model": [[MODEL:[0-9]+]],
// JSON-NEXT: "unknown": [[UNKNOWN:[0-9]+]]
// JSON: "per_operation": [
// JSON: "cost_ns": 40000,
// JSON-NEXT: "count": 1,
// JSON-NEXT: "known_from": "measured",
// JSON-NEXT: "name": "aten.mm.default",
// JSON: "cost_ns": [[UNKNOWN]],
// JSON-NEXT: "count": 2,
// JSON-NEXT: "known_from": "unknown",
// JSON-NEXT: "name": "mystery",
// JSON: "cost_ns": 5000,
// JSON-NEXT: "count": 1,
// JSON-NEXT: "known_from": "given",
// TABLE: known from {{ *}}{{[0-9.]+}} % given, {{[0-9.]+}} % measured, {{[0-9.]+}} % curve, {{[0-9.]+}} % model, [[SHARE:[0-9.]+]] % unknown
// TABLE-NEXT: 2 operations of unknown cost are guessed from the operands: [[SHARE]] % of all time is unknown
comm.group @dp #comm.iota<[1, 8]>
func.func @step(%x: tensor<64x64xf32>, %big: tensor<2048x2048xf32>, %v: tensor<4096xf32>, %w: tensor<8192xf32>)
    -> (tensor<64x64xf32>, tensor<2048x2048xf32>, tensor<32768xf32>, tensor<65536xf32>) {
  %f = comm.all_gather %v on @dp : (tensor<4096xf32>) -> !comm.future<tensor<32768xf32>>
  %g = comm.all_gather %w on @dp : (tensor<8192xf32>) -> !comm.future<tensor<65536xf32>>
  %m = comm.compute "aten.mm.default"(%x, %x) {comm.cost = #comm.cost<flops = 524288>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %p = comm.compute "aten.mm.default"(%m, %x) {comm.cost = #comm.cost<time = 5000>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %e = comm.compute "aten.exp.default"(%big) {comm.cost = #comm.cost<bytes = 33554432>} : (tensor<2048x2048xf32>) -> tensor<2048x2048xf32>
  %a = comm.compute "mystery"(%e) : (tensor<2048x2048xf32>) -> tensor<2048x2048xf32>
  %b = comm.compute "mystery"(%a) : (tensor<2048x2048xf32>) -> tensor<2048x2048xf32>
  %s = comm.wait %f : !comm.future<tensor<32768xf32>>
  %t = comm.wait %g : !comm.future<tensor<65536xf32>>
  return %p, %b, %s, %t : tensor<64x64xf32>, tensor<2048x2048xf32>, tensor<32768xf32>, tensor<65536xf32>
}

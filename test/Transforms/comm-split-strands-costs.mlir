// RUN: split-file %s %t
// RUN: comm-opt %t/program.mlir --comm-split-strands="force max-strands=2 machine=%t/machine.json" | FileCheck %s --check-prefix=FLAT
// RUN: %python -c "import json, sys; m = json.load(open(sys.argv[1])); m['compute']['matmul_tiles'] = {'units': 4, 'sizes': [{'rows': 8, 'columns': 8}]}; json.dump(m, open(sys.argv[2], 'w'))" %t/machine.json %t/tiles.json
// RUN: comm-opt %t/program.mlir --comm-split-strands="force max-strands=2 machine=%t/tiles.json" | FileCheck %s --check-prefix=TILES

// Tests that the part of a measured time is in proportion to what the model says of part and whole, at their own shapes.
// Without tiles, half of a product takes half of its time.
// FLAT-COUNT-2: comm.compute "aten.mm"({{.*}} {comm.cost = #comm.cost<flops = 2560000, time = 5000>}

// The whole has 2 x 2 tiles of 8 x 8 for four units: one wave. So has each half, which has 2 tiles, and takes the whole time.
// TILES-COUNT-2: comm.compute "aten.mm"({{.*}} {comm.cost = #comm.cost<flops = 2560000, time = 10000>}

// Tests the same for a time of the machine's table, which has the whole and no part. Elementwise operations have no
// tiles: half of the bytes take 1 of 2 ns.
// FLAT-COUNT-2: comm.compute "aten.relu"({{.*}} {comm.cost = #comm.cost<time = 3500>}
// TILES-COUNT-2: comm.compute "aten.relu"({{.*}} {comm.cost = #comm.cost<time = 3500>}

// Tests that a time of the table for the part's own shape precedes that.
// FLAT-COUNT-2: comm.compute "aten.neg"({{.*}}) : (tensor<8x16xf32>) -> tensor<8x16xf32>

//--- program.mlir
comm.group @tp #comm.iota<[1, 2]>
func.func @measured(%x: tensor<16x10000xf32>, %w: tensor<10000x16xf32>) -> tensor<16x16xf32> {
  %y = comm.compute "aten.mm"(%x, %w) {comm.cost = #comm.cost<flops = 5120000, time = 10000>} : (tensor<16x10000xf32>, tensor<10000x16xf32>) -> tensor<16x16xf32>
  %f = comm.all_reduce sum %y on @tp : (tensor<16x16xf32>) -> !comm.future<tensor<16x16xf32>>
  %s = comm.wait %f : !comm.future<tensor<16x16xf32>>
  %r = comm.compute "aten.relu"(%s) : (tensor<16x16xf32>) -> tensor<16x16xf32>
  %n = comm.compute "aten.neg"(%r) : (tensor<16x16xf32>) -> tensor<16x16xf32>
  return %n : tensor<16x16xf32>
}

//--- machine.json
{
  "schema_version": 1,
  "name": "measured",
  "node": {"ranks": 2},
  "memory": {"capacity_bytes": 1000000, "bandwidth_gbps": 1000},
  "compute": {"peak_tflops": {"f32": 1}, "launch_ns": 0},
  "copy": {"launch_ns": 0, "bandwidth_gbps": 1000},
  "links": {"base_ns": 100, "intra": {"bandwidth_gbps": 10, "latency_ns": 5}},
  "ops": [
    {"name": "aten.relu", "shapes": ["16x16xf32"], "ns": 7000},
    {"name": "aten.neg", "shapes": ["16x16xf32"], "ns": 7000},
    {"name": "aten.neg", "shapes": ["8x16xf32"], "ns": 6000}
  ]
}

// RUN: comm-opt %s --comm-report="table=false report-file=%t.json" -o /dev/null
// RUN: FileCheck %s --input-file=%t.json
// RUN: comm-opt %s --comm-report -o /dev/null 2>&1 | FileCheck %s --check-prefix=TABLE

// Tests that the hint of one value tells the size of what is made of it by collectives, views, casts and elementwise
// operations, and that what no hint tells stays unknown: it is counted and named.

comm.group @dp #comm.iota<[1, 8]>

// A hinted gather costs what a static one does.
// CHECK: "bytes": 33554432,
// CHECK-NEXT: "cost_ns": [[COST:[0-9]+]],
// CHECK: "unknown_costs": 0,
// CHECK-NEXT: "unknown_sizes": 0,
// CHECK-NEXT: "unknown_values": []
func.func @static(%x: tensor<512x4096xbf16>) -> tensor<4096x4096xbf16> {
  %f = comm.all_gather %x on @dp : (tensor<512x4096xbf16>) -> !comm.future<tensor<4096x4096xbf16>>
  %w = comm.wait %f : !comm.future<tensor<4096x4096xbf16>>
  return %w : tensor<4096x4096xbf16>
}

// CHECK: "peak_bytes": {
// CHECK-NEXT: "after": 33554432,
// CHECK: "bytes": 33554432,
// CHECK-NEXT: "cost_ns": [[COST]],
// CHECK: "unknown_costs": 0,
// CHECK-NEXT: "unknown_sizes": 0,
func.func @argument(%x: tensor<?x4096xbf16> {comm.bytes_hint = 4194304 : i64}) -> tensor<?x4096xbf16> {
  %f = comm.all_gather %x on @dp : (tensor<?x4096xbf16>) -> !comm.future<tensor<?x4096xbf16>>
  %w = comm.wait %f : !comm.future<tensor<?x4096xbf16>>
  return %w : tensor<?x4096xbf16>
}

// The argument as a view, as f32, negated, scattered, and gathered again: 8 MiB, then 1 MiB, then 8 MiB.
// (Nothing tells what the cast costs, being a comm.compute.)
// CHECK: "bytes": 8388608,
// CHECK: "bytes": 8388608,
// CHECK: "unknown_costs": 1,
// CHECK-NEXT: "unknown_sizes": 0,
func.func @chain(%x: tensor<?x4096xbf16> {comm.bytes_hint = 4194304 : i64}) -> tensor<?xf32> {
  %v = tensor.collapse_shape %x [[0, 1]] : tensor<?x4096xbf16> into tensor<?xbf16>
  %c = comm.compute "cast"(%v) : (tensor<?xbf16>) -> tensor<?xf32>
  %n = arith.negf %c : tensor<?xf32>
  %f = comm.reduce_scatter sum %n on @dp : (tensor<?xf32>) -> !comm.future<tensor<?xf32>>
  %s = comm.wait %f : !comm.future<tensor<?xf32>>
  %g = comm.all_gather %s on @dp : (tensor<?xf32>) -> !comm.future<tensor<?xf32>>
  %w = comm.wait %g : !comm.future<tensor<?xf32>>
  return %w : tensor<?xf32>
}

// What no hint tells: the argument, and what is gathered.
// CHECK: "bytes": 0,
// CHECK: "unknown_costs": 1,
// CHECK-NEXT: "unknown_sizes": 2,
// CHECK-NEXT: "unknown_values": [
// CHECK-NEXT: "argument 0",
// CHECK-NEXT: "comm.all_gather ({{.*}}size-hints.mlir:[[@LINE+4]]:8)"
// TABLE: unknown: {{.*}} operations
// TABLE: 2 values of unknown size count as 0 bytes (argument 0, comm.all_gather ({{.*}}size-hints.mlir:[[@LINE+2]]:8)); 1 operation of unknown cost is guessed
func.func @unknown(%x: tensor<?x4096xbf16>) -> tensor<?x4096xbf16> {
  %f = comm.all_gather %x on @dp : (tensor<?x4096xbf16>) -> !comm.future<tensor<?x4096xbf16>>
  %w = comm.wait %f : !comm.future<tensor<?x4096xbf16>>
  return %w : tensor<?x4096xbf16>
}

// A computation of its own may give anything.
// CHECK: "unknown_sizes": 1,
// CHECK-NEXT: "unknown_values": [
// CHECK-NEXT: "comm.compute ({{.*}}size-hints.mlir:[[@LINE+2]]:8)"
func.func @computed(%x: tensor<?xf32> {comm.bytes_hint = 64 : i64}, %d: tensor<?xf32> {comm.bytes_hint = 512 : i64}) -> tensor<?xf32> {
  %n = comm.compute "nonzero"(%x) : (tensor<?xf32>) -> tensor<?xf32>
  %f = comm.all_gather %n into %d on @dp : (tensor<?xf32>) -> !comm.future<tensor<?xf32>>
  %w = comm.wait %f : !comm.future<tensor<?xf32>>
  return %w : tensor<?xf32>
}

// Tests what the pipeline is told of operations of other dialects, and what it says of their collectives.

// RUN: comm-opt %s --split-input-file --allow-unregistered-dialect --reorder-comm-overlap --verify-diagnostics -o /dev/null
// RUN: comm-opt %s --split-input-file --allow-unregistered-dialect --reorder-comm-overlap='assume-pure=my,other.op memory-budget-ratio=1' 2>/dev/null | FileCheck %s

// Tests that assume-pure adds names to the module's attribute, each once, and that the gather then passes the operations.
// CHECK: module attributes {comm.no_effects = ["other.op", "my"]}
// CHECK: comm.all_gather
// CHECK: my.layer
// CHECK: other.op
module attributes {comm.no_effects = ["other.op"]} {
  comm.group @dp #comm.iota<[1, 8]>
  func.func @step(%x: tensor<4096x4096xbf16>, %w: tensor<512x4096xbf16>) -> (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) {
    %h = "my.layer"(%x) {comm.cost = #comm.cost<time = 100000>} : (tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
    %r = "other.op"(%h) {comm.cost = #comm.cost<time = 100000>} : (tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
    %f = comm.all_gather %w on @dp : (tensor<512x4096xbf16>) -> !comm.future<tensor<4096x4096xbf16>>
    %g = comm.wait %f : !comm.future<tensor<4096x4096xbf16>>
    return %r, %g : tensor<4096x4096xbf16>, tensor<4096x4096xbf16>
  }
}

// -----

// Tests that collectives that are not converted are named, once for each dialect.
module {
  shard.grid @grid(shape = 8)
  func.func @not_converted(%x: tensor<512x64xf32>) -> (tensor<4096x64xf32>, tensor<512x64xf32>, tensor<4096x64xf32>) {
    // expected-warning@+1 {{2 collectives of the dialect 'shard' are not scheduled; run --convert-shard-to-comm first}}
    %g = shard.all_gather %x on @grid grid_axes = [0] gather_axis = 0 : tensor<512x64xf32> -> tensor<4096x64xf32>
    %r = shard.all_reduce %x on @grid grid_axes = [0] : tensor<512x64xf32> -> tensor<512x64xf32>
    // expected-warning@+1 {{1 collective of the dialect 'stablehlo' is not scheduled; run --convert-stablehlo-to-comm first}}
    %s = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = dense<0> : tensor<1x1xi64>}> : (tensor<512x64xf32>) -> tensor<4096x64xf32>
    return %g, %r, %s : tensor<4096x64xf32>, tensor<512x64xf32>, tensor<4096x64xf32>
  }
}

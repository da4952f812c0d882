// RUN: split-file %s %t
// RUN: comm-opt %t/lane.mlir --reorder-comm-overlap=bucketing=false -o /dev/null 2>&1 | FileCheck %s --check-prefix=LANE
// RUN: comm-opt %t/wait.mlir --reorder-comm-overlap -o /dev/null 2>&1 | FileCheck %s --check-prefix=WAIT
// RUN: comm-opt %t/wait.mlir --reorder-comm-overlap=memory-budget-ratio=1 -o /dev/null 2>&1 | FileCheck %s --check-prefix=ROOM
// RUN: comm-opt %t/unknown.mlir --allow-unregistered-dialect --reorder-comm-overlap -o /dev/null 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: sed 's/^module {/module attributes {comm.no_effects = ["hlo"]} {/' %t/unknown.mlir > %t/dialect.mlir
// RUN: comm-opt %t/dialect.mlir --allow-unregistered-dialect --reorder-comm-overlap -o %t/out.mlir 2>&1 | FileCheck %s --check-prefix=KNOWN
// RUN: sed 's/"hlo.tanh"(%%h)/"hlo.tanh"(%%h) {comm.no_effects}/' %t/unknown.mlir > %t/one.mlir
// RUN: comm-opt %t/one.mlir --allow-unregistered-dialect --reorder-comm-overlap=memory-budget-ratio=1 -o /dev/null 2>&1 | FileCheck %s --check-prefix=ONE

// RUN: comm-opt %t/memory.mlir --allow-unregistered-dialect --reorder-comm-overlap -o /dev/null 2>&1 | FileCheck %s --check-prefix=MEMORY

// Tests that a lane that becomes free just when compute arrives is the reason, not the order, which is the best one.
// LANE: at most 0.00 % from optimal
// LANE: exposed collectives, worst 2 of 2
// LANE-NOT: order alone
// LANE: its lane is busy with 'comm.all_gather' at {{.*}}lane.mlir:5:11

// Tests that what does not fit in front of a wait is the reason of the wait: with more memory nothing is exposed.
// WAIT: exposed collectives, worst 1 of 1
// WAIT: peak memory: would reach {{.*}}, limit
// ROOM: exposed {{ *}}{{[0-9.]+ us}} {{ *}}0
// ROOM-NOT: exposed collectives

// Tests that unknown effects are the reason where a collective reads nothing of the operation, with the way out, and that
// the attribute is that way, for a dialect and for one operation.
// UNKNOWN: unknown effects of 'hlo.tanh' at {{.*}}; 'comm.no_effects' says that it has none
// KNOWN: load compute
// KNOWN-NOT: unknown effects
// ONE: unknown effects of 'hlo.dot_general'

// Tests the same for what keeps a wait from being later, and that nothing is said of sizes where all are known.
// RUN: comm-opt %t/behind.mlir --allow-unregistered-dialect --reorder-comm-overlap -o /dev/null 2>&1 | FileCheck %s --check-prefix=BEHIND
// BEHIND: {{^}}  1 operation of unknown cost is guessed from the operands
// BEHIND: unknown effects of 'my.op' at {{.*}}behind.mlir:6:10; 'comm.no_effects' says that it has none

// Tests that the attribute is not believed of an operation that takes memory.
// MEMORY: unknown effects of 'hlo.fill' at {{.*}}memory.mlir:5:5

//--- lane.mlir
module {
  comm.group @dp #comm.iota<[1, 8]>
  func.func @main(%x: tensor<4096x4096xf32>, %w1: tensor<512x4096xf32>, %w2: tensor<512x4096xf32>) -> tensor<4096x4096xf32> {
    %e = tensor.empty() : tensor<4096x4096xf32>
    %f1 = comm.all_gather %w1 on @dp {comm.cost = #comm.cost<time = 100000>} : (tensor<512x4096xf32>) -> !comm.future<tensor<4096x4096xf32>>
    %g1 = comm.wait %f1 : !comm.future<tensor<4096x4096xf32>>
    %m = comm.compute "m"(%x, %g1) {comm.cost = #comm.cost<time = 30000>} : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
    %f2 = comm.all_gather %w2 on @dp {comm.cost = #comm.cost<time = 110000>} : (tensor<512x4096xf32>) -> !comm.future<tensor<4096x4096xf32>>
    %g2 = comm.wait %f2 : !comm.future<tensor<4096x4096xf32>>
    %y = comm.compute "y"(%m, %g2) {comm.cost = #comm.cost<time = 30000>} : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
    return %y : tensor<4096x4096xf32>
  }
}
//--- wait.mlir
module {
  comm.group @dp #comm.iota<[1, 8]>
  func.func @step(%x: tensor<4096x4096xf32>, %g1: tensor<4096x4096xf32>, %g2: tensor<4096x4096xf32>) -> (tensor<4096x4096xf32>, tensor<4096x4096xf32>) {
    %e = tensor.empty() : tensor<4096x4096xf32>
    %s1 = linalg.matmul ins(%x, %g1 : tensor<4096x4096xf32>, tensor<4096x4096xf32>) outs(%e : tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
    %f = comm.all_reduce sum %s1 on @dp : (tensor<4096x4096xf32>) -> !comm.future<tensor<4096x4096xf32>>
    %q = comm.wait %f : !comm.future<tensor<4096x4096xf32>>
    %e2 = tensor.empty() : tensor<4096x4096xf32>
    %s2 = linalg.matmul ins(%x, %g2 : tensor<4096x4096xf32>, tensor<4096x4096xf32>) outs(%e2 : tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
    return %q, %s2 : tensor<4096x4096xf32>, tensor<4096x4096xf32>
  }
}
//--- unknown.mlir
module {
  comm.group @dp #comm.iota<[1, 8]>
  func.func @step(%x: tensor<4096x4096xbf16>, %w1: tensor<512x4096xbf16>, %w2: tensor<512x4096xbf16>) -> tensor<4096x4096xbf16> {
    %f1 = comm.all_gather %w1 on @dp : (tensor<512x4096xbf16>) -> !comm.future<tensor<4096x4096xbf16>>
    %g1 = comm.wait %f1 : !comm.future<tensor<4096x4096xbf16>>
    %h = "hlo.dot_general"(%x, %g1) : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
    %r = "hlo.tanh"(%h) : (tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
    %f2 = comm.all_gather %w2 on @dp : (tensor<512x4096xbf16>) -> !comm.future<tensor<4096x4096xbf16>>
    %g2 = comm.wait %f2 : !comm.future<tensor<4096x4096xbf16>>
    %y = "hlo.dot_general"(%r, %g2) : (tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<4096x4096xbf16>
    return %y : tensor<4096x4096xbf16>
  }
}
//--- behind.mlir
module {
  comm.group @dp #comm.iota<[1, 8]>
  func.func @step(%x: tensor<64x64xf32>, %w: tensor<8x8xf32>) -> (tensor<64x8xf32>, tensor<64x64xf32>) {
    %f = comm.all_gather %w on @dp : (tensor<8x8xf32>) -> !comm.future<tensor<64x8xf32>>
    %g = comm.wait %f : !comm.future<tensor<64x8xf32>>
    %y = "my.op"(%x) : (tensor<64x64xf32>) -> tensor<64x64xf32>
    return %g, %y : tensor<64x8xf32>, tensor<64x64xf32>
  }
}
//--- memory.mlir
module attributes {comm.no_effects = ["hlo"]} {
  comm.group @dp #comm.iota<[1, 8]>
  func.func @step(%m: memref<64xf32>, %x: tensor<4096x4096xf32>, %w: tensor<512x4096xf32>) -> tensor<4096x4096xf32> {
    %y = comm.compute "m"(%x) {comm.cost = #comm.cost<time = 30000>} : (tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
    "hlo.fill"(%m) {comm.no_effects, comm.cost = #comm.cost<time = 50000>} : (memref<64xf32>) -> ()
    %f = comm.all_gather %w on @dp : (tensor<512x4096xf32>) -> !comm.future<tensor<4096x4096xf32>>
    %g = comm.wait %f : !comm.future<tensor<4096x4096xf32>>
    %z = comm.compute "z"(%y, %g) {comm.cost = #comm.cost<time = 30000>} : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
    return %z : tensor<4096x4096xf32>
  }
}

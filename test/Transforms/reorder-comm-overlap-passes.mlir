// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-reorder-preserving-peak-memory,comm-sink-waits-preserving-peak-memory table=false" --comm-report=%t.json | FileCheck %s
// RUN: FileCheck %s --check-prefix=JSON --input-file=%t.json
// RUN: comm-opt %s --reorder-comm-overlap="table=false" --mlir-disable-threading | FileCheck %s
// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-align-costs,comm-raise,comm-verify,comm-report profiles=h100-sxm,a100-sxm,b200-sxm table=false" \
// RUN:   2>%t.table | FileCheck %s
// RUN: FileCheck %s --check-prefix=TABLE --input-file=%t.table
// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-remove-unsharded-param-usage,comm-reinplace-all-gather,comm-bucket,comm-realize-buffers,comm-order-fsdp,comm-order-collectives table=false" \
// RUN:   | FileCheck %s --check-prefix=PINNED

comm.group @dp #comm.iota<[1, 4]>

// Tests that the pipeline reaches the functions of modules inside of modules, and that `passes` takes passes of
// functions and of modules in any order.
// CHECK-LABEL: func.func @step
// CHECK-NEXT: comm.all_gather
// CHECK-NEXT: compute "mm"
// CHECK: comm.wait
// PINNED-LABEL: func.func @step
// JSON: "name": "step"
// TABLE: step: 4 operations
func.func @step(%x: tensor<32xf32>, %y: tensor<64xf32>) -> (tensor<64xf32>, tensor<128xf32>) {
  %a = comm.compute "mm"(%y) {comm.cost = #comm.cost<time = 200>} : (tensor<64xf32>) -> tensor<64xf32>
  %f = comm.all_gather %x on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<32xf32>) -> !comm.future<tensor<128xf32>>
  %w = comm.wait %f : !comm.future<tensor<128xf32>>
  %b = comm.compute "relu"(%a) {comm.cost = #comm.cost<time = 200>} : (tensor<64xf32>) -> tensor<64xf32>
  return %b, %w : tensor<64xf32>, tensor<128xf32>
}

// CHECK-LABEL: module @inner
// CHECK: func.func @step
// CHECK-NEXT: comm.all_gather
// PINNED-LABEL: module @inner
// PINNED: comm.all_gather
// PINNED-SAME: comm.pinned
// PINNED: comm.all_gather
// PINNED-SAME: comm.pinned
// JSON: "name": "inner::step"
// TABLE: inner::step: 7 operations
module @inner {
  comm.group @dp #comm.iota<[1, 4]>
  func.func @step(%x: tensor<32xf32>, %y: tensor<64xf32>) -> (tensor<64xf32>, tensor<128xf32>, tensor<128xf32>) {
    %a = comm.compute "mm"(%y) {comm.cost = #comm.cost<time = 200>} : (tensor<64xf32>) -> tensor<64xf32>
    %f = comm.all_gather %x on @dp {comm.cost = #comm.cost<time = 200>} : (tensor<32xf32>) -> !comm.future<tensor<128xf32>>
    %w = comm.wait %f : !comm.future<tensor<128xf32>>
    %b = comm.compute "relu"(%a) {comm.cost = #comm.cost<time = 200>} : (tensor<64xf32>) -> tensor<64xf32>
    %c = comm.compute "cast"(%w) {comm.cost = #comm.cost<time = 200>} : (tensor<128xf32>) -> tensor<32xf32>
    %g = comm.all_gather %c on @dp {comm.cost = #comm.cost<time = 200>} : (tensor<32xf32>) -> !comm.future<tensor<128xf32>>
    %v = comm.wait %g : !comm.future<tensor<128xf32>>
    return %b, %w, %v : tensor<64xf32>, tensor<128xf32>, tensor<128xf32>
  }

  // CHECK-LABEL: module {
  // CHECK: func.func @deep
  // CHECK-NEXT: comm.all_gather
  // CHECK-NEXT: compute "mm"
  // JSON: "name": "inner::module::deep"
  module {
    comm.group @dp #comm.iota<[1, 4]>
    func.func @deep(%x: tensor<32xf32>, %y: tensor<64xf32>) -> (tensor<64xf32>, tensor<128xf32>) {
      %a = comm.compute "mm"(%y) {comm.cost = #comm.cost<time = 200>} : (tensor<64xf32>) -> tensor<64xf32>
      %f = comm.all_gather %x on @dp {comm.cost = #comm.cost<time = 200>} : (tensor<32xf32>) -> !comm.future<tensor<128xf32>>
      %w = comm.wait %f : !comm.future<tensor<128xf32>>
      return %a, %w : tensor<64xf32>, tensor<128xf32>
    }
  }
}

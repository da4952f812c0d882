// RUN: comm-opt %s --comm-report="report-file=%t.json" -o /dev/null 2>&1 | FileCheck %s
// RUN: FileCheck %s --check-prefix=JSON --input-file=%t.json

// Tests the price of PyTorch's operators that fuse a matrix product with a collective: the longer of both.
comm.group @tp #comm.iota<[1, 8]>

// The product takes longer: 8192^3 f32 cost what @product of the same operands costs.
// CHECK-LABEL: product:
// CHECK: makespan           [[PRODUCT:[0-9.]+ ms]]
func.func @product(%a: tensor<8192x8192xf32>, %b: tensor<8192x8192xf32>, %w: tensor<1xf32>) -> (tensor<8192x8192xf32>, tensor<1xf32>) {
  %y = comm.compute "aten.mm.default"(%a, %b) {comm.cost = #comm.cost<flops = 1099511627776, bytes = 805306368>} : (tensor<8192x8192xf32>, tensor<8192x8192xf32>) -> tensor<8192x8192xf32>
  %v = comm.compute "empty"(%w) {comm.hybrid = @tp, comm.cost = #comm.cost<time = 0>} : (tensor<1xf32>) -> tensor<1xf32>
  return %y, %v : tensor<8192x8192xf32>, tensor<1xf32>
}

// CHECK-LABEL: product_and_sum:
// CHECK: makespan           [[PRODUCT]]
func.func @product_and_sum(%a: tensor<8192x8192xf32>, %b: tensor<8192x8192xf32>) -> tensor<1024x8192xf32> {
  %y = comm.compute "symm_mem.fused_matmul_reduce_scatter.default"(%a, %b) {comm.hybrid = @tp, comm.cost = #comm.cost<flops = 1099511627776, bytes = 805306368>} : (tensor<8192x8192xf32>, tensor<8192x8192xf32>) -> tensor<1024x8192xf32>
  return %y : tensor<1024x8192xf32>
}

// The gather takes longer: that of 8 x 32 MiB, as @gather shows.
// CHECK-LABEL: gather:
// CHECK: makespan           [[GATHER:[0-9.]+ us]]
func.func @gather(%a: tensor<1024x8192xf32>) -> tensor<8192x8192xf32> {
  %f = comm.all_gather %a on @tp : (tensor<1024x8192xf32>) -> !comm.future<tensor<8192x8192xf32>>
  %y = comm.wait %f : !comm.future<tensor<8192x8192xf32>>
  return %y : tensor<8192x8192xf32>
}

// CHECK-LABEL: gather_and_product:
// CHECK: makespan           [[GATHER]]
func.func @gather_and_product(%a: tensor<1024x8192xf32>, %b: tensor<8192x1xf32>) -> tensor<8192x1xf32> {
  %y = comm.compute "symm_mem.fused_all_gather_matmul.default"(%a, %b) {comm.hybrid = @tp, comm.cost = #comm.cost<flops = 134217728, bytes = 33619968>} : (tensor<1024x8192xf32>, tensor<8192x1xf32>) -> tensor<8192x1xf32>
  return %y : tensor<8192x1xf32>
}

// Nobody knows what this one communicates, so its cost is a guess although its operations are known.
// CHECK-LABEL: other:
// CHECK: 1 operation of unknown cost
func.func @other(%a: tensor<1024xf32>) -> tensor<1024xf32> {
  %y = comm.compute "symm_mem.other.default"(%a) {comm.hybrid = @tp, comm.cost = #comm.cost<flops = 1024, bytes = 8192>} : (tensor<1024xf32>) -> tensor<1024xf32>
  return %y : tensor<1024xf32>
}

// JSON: "unknown_costs": 0,
// JSON: "unknown_costs": 0,
// JSON: "unknown_costs": 0,
// JSON: "unknown_costs": 0,
// JSON: "unknown_costs": 1,

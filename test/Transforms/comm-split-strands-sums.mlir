// RUN: comm-opt %s --comm-split-strands="force max-strands=2 allow-reassociation" --split-input-file | FileCheck %s
// RUN: comm-opt %s --comm-split-strands="force max-strands=2" --split-input-file | FileCheck %s --check-prefix=EXACT

// Tests that a gradient of a weight gives one partial result per strand, and that the second is added to the first in
// its storage. Without the option it is a barrier.
comm.group @tp #comm.iota<[1, 2]>
// CHECK-LABEL: func @product
// CHECK-SAME: attributes {comm.numerics = {class = "reassociated"}}
// EXACT-LABEL: func @product
// EXACT-SAME: -> tensor<6x12xf32> {
func.func @product(%x: tensor<6x8xf32>, %y: tensor<8x12xf32>) -> tensor<6x12xf32> {
  // CHECK: %[[W0:.*]] = comm.wait
  // CHECK: %[[W1:.*]] = comm.wait
  // CHECK: %[[X0:.*]] = tensor.extract_slice %arg0[0, 0] [6, 4] [1, 1]
  // CHECK: %[[P0:.*]] = comm.compute "aten.mm"(%[[X0]], %[[W0]]) {comm.cost = #comm.cost<flops = 576, bytes = 576>}
  // CHECK-SAME: -> tensor<6x12xf32>
  // CHECK: %[[X1:.*]] = tensor.extract_slice %arg0[0, 4] [6, 4] [1, 1]
  // CHECK: %[[P1:.*]] = comm.compute "aten.mm"(%[[X1]], %[[W1]])
  // CHECK: %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[P1]] : tensor<6x12xf32>) outs(%[[P0]] : tensor<6x12xf32>)
  // CHECK: arith.addf
  // CHECK: return %[[SUM]]
  // EXACT: tensor.insert_slice
  // EXACT: comm.compute "aten.mm"({{.*}}) {{.*}} : (tensor<6x8xf32>, tensor<8x12xf32>)
  %f = comm.all_reduce sum %y on @tp : (tensor<8x12xf32>) -> !comm.future<tensor<8x12xf32>>
  %s = comm.wait %f : !comm.future<tensor<8x12xf32>>
  %g = comm.compute "aten.mm"(%x, %s) {comm.cost = #comm.cost<flops = 1152, bytes = 864>} : (tensor<6x8xf32>, tensor<8x12xf32>) -> tensor<6x12xf32>
  return %g : tensor<6x12xf32>
}

// -----

// Tests that a reduction of linalg continues in the destination that the strand before it has filled.
comm.group @tp #comm.iota<[1, 2]>
// CHECK-LABEL: func @destination
func.func @destination(%x: tensor<8x16xf32>, %y: tensor<8x12xf32>) -> tensor<16x12xf32> {
  // CHECK: %[[ZERO:.*]] = arith.constant dense<0.0{{.*}}> : tensor<16x12xf32>
  // CHECK: %[[P0:.*]] = linalg.matmul {{.*}} ins(%{{.*}}, %{{.*}} : tensor<4x16xf32>, tensor<4x12xf32>) outs(%[[ZERO]] : tensor<16x12xf32>)
  // CHECK: %[[P1:.*]] = linalg.matmul {{.*}} outs(%[[P0]] : tensor<16x12xf32>)
  // CHECK-NOT: linalg.generic
  // CHECK: return %[[P1]]
  %f = comm.all_reduce sum %y on @tp : (tensor<8x12xf32>) -> !comm.future<tensor<8x12xf32>>
  %s = comm.wait %f : !comm.future<tensor<8x12xf32>>
  %zero = arith.constant dense<0.0> : tensor<16x12xf32>
  %g = linalg.matmul indexing_maps = [affine_map<(a, b, c) -> (c, a)>, affine_map<(a, b, c) -> (c, b)>, affine_map<(a, b, c) -> (a, b)>]
    ins(%x, %s : tensor<8x16xf32>, tensor<8x12xf32>) outs(%zero : tensor<16x12xf32>) -> tensor<16x12xf32>
  return %g : tensor<16x12xf32>
}

// -----

// Tests that the sum is whole for what reads it: a reduction of partial results happens once, on their sum.
comm.group @tp #comm.iota<[1, 2]>
// CHECK-LABEL: func @reduced_once
func.func @reduced_once(%y: tensor<8x13xf32>) -> tensor<13xf32> {
  // CHECK-COUNT-2: comm.all_reduce sum %{{.*}} : (tensor<4x13xf32>)
  // CHECK-COUNT-2: comm.compute "aten.sum.dim_IntList"(%{{.*}}) : (tensor<4x13xf32>) -> tensor<13xf32>
  // CHECK: %[[SUM:.*]] = linalg.generic
  // CHECK: comm.all_reduce sum %[[SUM]] on @tp : (tensor<13xf32>)
  // CHECK-NOT: comm.all_reduce
  // CHECK: return
  %f = comm.all_reduce sum %y on @tp : (tensor<8x13xf32>) -> !comm.future<tensor<8x13xf32>>
  %s = comm.wait %f : !comm.future<tensor<8x13xf32>>
  %b = comm.compute "aten.sum.dim_IntList"(%s) : (tensor<8x13xf32>) -> tensor<13xf32>
  %g = comm.all_reduce sum %b on @tp : (tensor<13xf32>) -> !comm.future<tensor<13xf32>>
  %r = comm.wait %g : !comm.future<tensor<13xf32>>
  return %r : tensor<13xf32>
}

// -----

// Tests that sums of integers, which are exact in any order, are split without the option.
comm.group @tp #comm.iota<[1, 2]>
// EXACT-LABEL: func @integers
func.func @integers(%y: tensor<8x12xi32>) -> tensor<12xi32> {
  // EXACT-COUNT-2: comm.compute "aten.sum.dim_IntList"(%{{.*}}) : (tensor<4x12xi32>) -> tensor<12xi32>
  // EXACT: arith.addi
  %f = comm.all_reduce sum %y on @tp : (tensor<8x12xi32>) -> !comm.future<tensor<8x12xi32>>
  %s = comm.wait %f : !comm.future<tensor<8x12xi32>>
  %b = comm.compute "aten.sum.dim_IntList"(%s) : (tensor<8x12xi32>) -> tensor<12xi32>
  return %b : tensor<12xi32>
}

// -----

// Tests that comm.split states with -1 that a result is the sum of what the parts give, beside a result that is split, and
// that what a mean, a product with a bias and a largest element give is not added.
comm.group @tp #comm.iota<[1, 2]>
// CHECK-LABEL: func @given_rule
// EXACT-LABEL: func @given_rule
func.func @given_rule(%y: tensor<8x12xf32>, %x: tensor<6x8xf32>, %b: tensor<12xf32>) -> (tensor<8x12xf32>, tensor<12xf32>, tensor<1x12xf32>, tensor<6x12xf32>, tensor<12xf32>) {
  // CHECK: %[[P0:.*]]:2 = comm.compute "norm_backward"({{.*}}) : (tensor<4x12xf32>) -> (tensor<4x12xf32>, tensor<12xf32>)
  // CHECK: %[[P1:.*]]:2 = comm.compute "norm_backward"({{.*}}) : (tensor<4x12xf32>) -> (tensor<4x12xf32>, tensor<12xf32>)
  // CHECK: linalg.generic {{.*}} ins(%[[P1]]#1 : tensor<12xf32>) outs(%[[P0]]#1 : tensor<12xf32>)
  // CHECK: comm.compute "aten.mean.dim"({{.*}}) : (tensor<8x12xf32>)
  // CHECK: comm.compute "aten.addmm"({{.*}}) : (tensor<12xf32>, tensor<6x8xf32>, tensor<8x12xf32>)
  // CHECK: comm.compute "aten.amax.default"({{.*}}) : (tensor<8x12xf32>)
  // EXACT: comm.compute "norm_backward"({{.*}}) {comm.split = [array<i64: 0, 0, -1>]} : (tensor<8x12xf32>)
  %f = comm.all_reduce sum %y on @tp : (tensor<8x12xf32>) -> !comm.future<tensor<8x12xf32>>
  %s = comm.wait %f : !comm.future<tensor<8x12xf32>>
  %g:2 = comm.compute "norm_backward"(%s) {comm.split = [array<i64: 0, 0, -1>]} : (tensor<8x12xf32>) -> (tensor<8x12xf32>, tensor<12xf32>)
  %m = comm.compute "aten.mean.dim"(%s) : (tensor<8x12xf32>) -> tensor<1x12xf32>
  %a = comm.compute "aten.addmm"(%b, %x, %s) : (tensor<12xf32>, tensor<6x8xf32>, tensor<8x12xf32>) -> tensor<6x12xf32>
  %n = comm.compute "aten.amax.default"(%s) : (tensor<8x12xf32>) -> tensor<12xf32>
  return %g#0, %g#1, %m, %a, %n : tensor<8x12xf32>, tensor<12xf32>, tensor<1x12xf32>, tensor<6x12xf32>, tensor<12xf32>
}

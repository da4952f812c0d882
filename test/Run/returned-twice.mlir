// Tests that a write of one result of a call is not seen through another result that may be the same tensor, a part of it,
// or what another function returned twice, and that a constant which a function returns stays one.

// RUN: comm-run %s --print | FileCheck %s
// RUN: comm-opt %s --inline --comm-bufferize --comm-plan-buffers -o %t.inlined.mlir
// RUN: comm-opt %s --reorder-comm-overlap --comm-bufferize --comm-plan-buffers -o %t.planned.mlir
// RUN: comm-run %s --compare %t.inlined.mlir --compare %t.planned.mlir

comm.group @world #comm.iota<[1, 2]>

func.func private @twice(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  %f = comm.all_reduce sum %x on @world : (tensor<2xf32>) -> !comm.future<tensor<2xf32>>
  %sum = comm.wait %f : !comm.future<tensor<2xf32>>
  return %sum, %sum : tensor<2xf32>, tensor<2xf32>
}

func.func private @again(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  %r:2 = call @twice(%x) : (tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)
  return %r#1, %r#0 : tensor<2xf32>, tensor<2xf32>
}

func.func private @part(%x: tensor<2xf32>, %c: i1) -> (tensor<2xf32>, tensor<1xf32>) {
  %r:2 = call @again(%x) : (tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)
  %some = scf.if %c -> tensor<2xf32> {
    scf.yield %r#0 : tensor<2xf32>
  } else {
    scf.yield %x : tensor<2xf32>
  }
  %slice = tensor.extract_slice %some[1] [1] [1] : tensor<2xf32> to tensor<1xf32>
  return %r#1, %slice : tensor<2xf32>, tensor<1xf32>
}

func.func private @constant() -> tensor<2xf32> {
  %three = arith.constant dense<3.0> : tensor<2xf32>
  return %three : tensor<2xf32>
}

// CHECK: rank 0 result 0: [4, 4]
// CHECK-NEXT: rank 0 result 1: [2, 2]
// CHECK-NEXT: rank 0 result 2: [4, 4]
// CHECK-NEXT: rank 0 result 3: [2, 2]
// CHECK-NEXT: rank 0 result 4: [4, 4]
// CHECK-NEXT: rank 0 result 5: [2]
// CHECK-NEXT: rank 0 result 6: [6, 6]
// CHECK-NEXT: rank 0 result 7: [3, 3]
func.func @main() -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<1xf32>,
                      tensor<2xf32>, tensor<2xf32>) {
  %one = arith.constant dense<1.0> : tensor<2xf32>
  %true = arith.constant true
  %r:2 = call @twice(%one) : (tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)
  %a = linalg.add ins(%r#0, %r#0 : tensor<2xf32>, tensor<2xf32>) outs(%r#0 : tensor<2xf32>) -> tensor<2xf32>
  %s:2 = call @again(%one) : (tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)
  %b = linalg.add ins(%s#0, %s#0 : tensor<2xf32>, tensor<2xf32>) outs(%s#0 : tensor<2xf32>) -> tensor<2xf32>
  %t:2 = call @part(%one, %true) : (tensor<2xf32>, i1) -> (tensor<2xf32>, tensor<1xf32>)
  %c = linalg.add ins(%t#0, %t#0 : tensor<2xf32>, tensor<2xf32>) outs(%t#0 : tensor<2xf32>) -> tensor<2xf32>
  %k = call @constant() : () -> tensor<2xf32>
  %d = linalg.add ins(%k, %k : tensor<2xf32>, tensor<2xf32>) outs(%k : tensor<2xf32>) -> tensor<2xf32>
  %l = call @constant() : () -> tensor<2xf32>
  return %a, %r#1, %b, %s#1, %c, %t#1, %d, %l
      : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<1xf32>, tensor<2xf32>, tensor<2xf32>
}

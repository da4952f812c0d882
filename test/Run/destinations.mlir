// Tests that each value of a collective gets storage of its own where its destinations are tensors that are values: two
// equal destinations, which other passes may have merged, and destinations that are inputs of other values.

// RUN: comm-run %s --print | FileCheck %s
// RUN: comm-opt %s --cse -o %t.merged.mlir
// RUN: FileCheck %s --check-prefix=MERGED --input-file=%t.merged.mlir
// RUN: comm-run %t.merged.mlir --print | FileCheck %s
// RUN: comm-opt %s --cse --reorder-comm-overlap --comm-bufferize --comm-plan-buffers -o %t.planned.mlir
// RUN: comm-run %s --compare %t.planned.mlir

comm.group @world #comm.iota<[1, 4]>

// CHECK: rank 0 result 0: [4, 4]
// CHECK-NEXT: rank 0 result 1: [40, 40]
// CHECK-NEXT: rank 0 result 2: [4, 4]
// CHECK-NEXT: rank 0 result 3: [40, 40]
// CHECK-NEXT: rank 0 result 4: [16, 16]
// CHECK-NEXT: rank 0 result 5: [16, 16]
// CHECK-NEXT: rank 0 result 6: [1, 1]
// CHECK-NEXT: rank 0 result 7: [10, 10]
func.func @main() -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>,
                      tensor<2xf32>, tensor<2xf32>) {
  %one = arith.constant dense<1.0> : tensor<2xf32>
  %ten = arith.constant dense<10.0> : tensor<2xf32>

  // Two destinations that become one.
  // MERGED: comm.all_reduce sum %{{.*}}, %{{.*}} into %[[DEST:.*]], %[[DEST]] on @world
  %e0 = tensor.empty() : tensor<2xf32>
  %e1 = tensor.empty() : tensor<2xf32>
  %f0 = comm.all_reduce sum %one, %ten into %e0, %e1 on @world
      : (tensor<2xf32>, tensor<2xf32>) -> !comm.future<tensor<2xf32>, tensor<2xf32>>
  %s:2 = comm.wait %f0 : !comm.future<tensor<2xf32>, tensor<2xf32>>

  // Each destination is the other one's input.
  %a = comm.compute "copy"(%one) : (tensor<2xf32>) -> tensor<2xf32>
  %b = comm.compute "copy"(%ten) : (tensor<2xf32>) -> tensor<2xf32>
  %f1 = comm.all_reduce sum %a, %b into %b, %a on @world
      : (tensor<2xf32>, tensor<2xf32>) -> !comm.future<tensor<2xf32>, tensor<2xf32>>
  %t:2 = comm.wait %f1 : !comm.future<tensor<2xf32>, tensor<2xf32>>

  // An input that is the destination of one value and the input of another.
  %c = comm.compute "add"(%s#0, %t#0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %half = comm.compute "sub"(%c, %s#0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %other = tensor.empty() : tensor<2xf32>
  %f2 = comm.all_reduce sum %half, %half into %half, %other on @world
      : (tensor<2xf32>, tensor<2xf32>) -> !comm.future<tensor<2xf32>, tensor<2xf32>>
  %u:2 = comm.wait %f2 : !comm.future<tensor<2xf32>, tensor<2xf32>>

  // The copy-out of a bucket.
  %slice, %buffer = comm.fsdp.all_gather_copy_in %one, %ten on @world : (tensor<2xf32>, tensor<2xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  %f3 = comm.all_gather %slice into %buffer on @world : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %full = comm.wait %f3 : !comm.future<tensor<16xf32>>
  %e2 = tensor.empty() : tensor<8xf32>
  %e3 = tensor.empty() : tensor<8xf32>
  %p:2 = comm.fsdp.split_with_sizes_copy %full into %e2, %e3 : tensor<8xf32>, tensor<8xf32> sizes [2, 2] : (tensor<16xf32>) -> (tensor<8xf32>, tensor<8xf32>)
  %first = tensor.extract_slice %p#0[0] [2] [1] : tensor<8xf32> to tensor<2xf32>
  %second = tensor.extract_slice %p#1[6] [2] [1] : tensor<8xf32> to tensor<2xf32>
  return %s#0, %s#1, %t#0, %t#1, %u#0, %u#1, %first, %second
      : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
}

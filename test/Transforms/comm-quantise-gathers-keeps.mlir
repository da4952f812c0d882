// RUN: comm-opt %s --comm-quantise-gathers --remarks-filter=comm-quantise-gathers --verify-diagnostics | FileCheck %s --implicit-check-not=xi8 --implicit-check-not=comm.numerics

comm.group @dp #comm.iota<[1, 8]>

// Tests destinations, given costs, and units, which hold for the gather as it is.
// CHECK-LABEL: func @given
// CHECK-COUNT-3: comm.all_gather {{.*}}xf32>) ->
func.func @given(%x: tensor<1024x1024xf32>, %d: tensor<8192x1024xf32>) -> (tensor<8192x1024xf32>, tensor<8192x1024xf32>, tensor<8192x1024xf32>) {
  // expected-remark @+1 {{LimitingFactor="the gather has a destination"}}
  %f = comm.all_gather %x into %d on @dp : (tensor<1024x1024xf32>) -> !comm.future<tensor<8192x1024xf32>>
  %u = comm.wait %f : !comm.future<tensor<8192x1024xf32>>
  // expected-remark @+1 {{LimitingFactor="the cost of the gather is given, and holds for its bytes as they are"}}
  %g = comm.all_gather %x on @dp {comm.cost = #comm.cost<time = 1000000000>} : (tensor<1024x1024xf32>) -> !comm.future<tensor<8192x1024xf32>>
  %v = comm.wait %g : !comm.future<tensor<8192x1024xf32>>
  // expected-remark @+1 {{LimitingFactor="the gather is part of a unit, whose operations are consecutive"}}
  %h = comm.all_gather %x on @dp {comm.unit = 1 : i64} : (tensor<1024x1024xf32>) -> !comm.future<tensor<8192x1024xf32>>
  %w = comm.wait %h : !comm.future<tensor<8192x1024xf32>>
  return %u, %v, %w : tensor<8192x1024xf32>, tensor<8192x1024xf32>, tensor<8192x1024xf32>
}

// Tests futures with several waits, without a wait in the block, and with other users.
// CHECK-LABEL: func @futures
func.func @futures(%x: tensor<1024x1024xf32>, %c: i1) -> (tensor<8192x1024xf32>, tensor<8192x1024xf32>, !comm.future<tensor<8192x1024xf32>>) {
  // expected-remark @+1 {{LimitingFactor="the future has several waits"}}
  %f = comm.all_gather %x on @dp : (tensor<1024x1024xf32>) -> !comm.future<tensor<8192x1024xf32>>
  %u = comm.wait %f : !comm.future<tensor<8192x1024xf32>>
  %v = comm.wait %f : !comm.future<tensor<8192x1024xf32>>
  // expected-remark @+1 {{LimitingFactor="the wait is in another block"}}
  %g = comm.all_gather %x on @dp : (tensor<1024x1024xf32>) -> !comm.future<tensor<8192x1024xf32>>
  %w = scf.if %c -> tensor<8192x1024xf32> {
    %0 = comm.wait %g : !comm.future<tensor<8192x1024xf32>>
    scf.yield %0 : tensor<8192x1024xf32>
  } else {
    scf.yield %u : tensor<8192x1024xf32>
  }
  // expected-remark @+1 {{LimitingFactor="'func.return' uses the future, which only a wait may do"}}
  %h = comm.all_gather %x on @dp : (tensor<1024x1024xf32>) -> !comm.future<tensor<8192x1024xf32>>
  return %v, %w, %h : tensor<8192x1024xf32>, tensor<8192x1024xf32>, !comm.future<tensor<8192x1024xf32>>
}

// Tests a shard that the program writes in flight, and gathered values that it writes.
// CHECK-LABEL: func @places
func.func @places(%x: tensor<1024x1024xf32>, %y: tensor<1024x1024xf32>) -> tensor<8192x1024xf32> {
  // expected-remark @+1 {{LimitingFactor="the program writes the storage of an input or of a gathered value"}}
  %f = comm.all_gather %x on @dp : (tensor<1024x1024xf32>) -> !comm.future<tensor<8192x1024xf32>>
  %u = comm.wait %f : !comm.future<tensor<8192x1024xf32>>
  comm.compute "zero_"(%x) mutates [0] : (tensor<1024x1024xf32>) -> ()
  // expected-remark @+1 {{LimitingFactor="the program writes the storage of an input or of a gathered value"}}
  %g = comm.all_gather %y on @dp : (tensor<1024x1024xf32>) -> !comm.future<tensor<8192x1024xf32>>
  %v = comm.wait %g : !comm.future<tensor<8192x1024xf32>>
  comm.compute "zero_"(%v) mutates [0] : (tensor<8192x1024xf32>) -> ()
  return %u : tensor<8192x1024xf32>
}

// Tests that streams are chosen last.
// CHECK-LABEL: func @streams
func.func @streams(%x: tensor<1024x1024xf32>) -> (tensor<8192x1024xf32>, tensor<4xf32>) {
  // expected-remark @+1 {{LimitingFactor="operations of the block are on several streams; choose streams last"}}
  %f = comm.all_gather %x on @dp : (tensor<1024x1024xf32>) -> !comm.future<tensor<8192x1024xf32>>
  %a = comm.compute "other"(%x) {comm.stream = 1 : i64} : (tensor<1024x1024xf32>) -> tensor<4xf32>
  %u = comm.wait %f : !comm.future<tensor<8192x1024xf32>>
  return %u, %a : tensor<8192x1024xf32>, tensor<4xf32>
}

// Tests buffers.
// CHECK-LABEL: func @buffers
func.func @buffers(%x: memref<1024x1024xf32>, %d: memref<8192x1024xf32>) {
  // expected-remark @+1 {{LimitingFactor="the gather is on buffers"}}
  %f = comm.all_gather %x into %d on @dp : (memref<1024x1024xf32>) -> !comm.future<memref<8192x1024xf32>>
  %u = comm.wait %f keeping (%x, %d : memref<1024x1024xf32>, memref<8192x1024xf32>) : !comm.future<memref<8192x1024xf32>>
  return
}

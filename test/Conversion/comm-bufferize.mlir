// RUN: comm-opt %s --comm-bufferize --canonicalize --split-input-file | FileCheck %s --implicit-check-not=memref.copy

// Tests that nothing is copied where nothing needs to be: one buffer for the chain before the collective, which dies at its
// wait, and one for the gathered value and what is computed from it.
comm.group @dp #comm.iota<[1, 2]>
// CHECK-LABEL: func @chain
func.func @chain(%x: tensor<8xf32>) -> tensor<16xf32> {
  %c = arith.constant 2.0 : f32
  %e = tensor.empty() : tensor<8xf32>
  // CHECK: %[[A:[a-z0-9_]+]] = memref.alloc()
  // CHECK: linalg.fill {{.*}} outs(%[[A]] :
  %f = linalg.fill ins(%c : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  // CHECK: linalg.add {{.*}} outs(%[[A]] :
  %a = linalg.add ins(%x, %f : tensor<8xf32>, tensor<8xf32>) outs(%f : tensor<8xf32>) -> tensor<8xf32>
  // CHECK: %[[W:[a-z0-9_]+]] = memref.alloc()
  // CHECK: comm.all_gather %[[A]] into %[[W]]
  %s = comm.all_gather %a on @dp : (tensor<8xf32>) -> !comm.future<tensor<16xf32>>
  // CHECK: %[[R:[a-z0-9_]+]] = comm.wait %{{.*}} keeping (%[[A]], %[[W]] :
  // CHECK-NEXT: memref.dealloc %[[A]] {bufferization.manual_deallocation}
  %w = comm.wait %s : !comm.future<tensor<16xf32>>
  // CHECK-NOT: memref.alloc
  // CHECK: linalg.exp ins(%[[R]] : {{.*}}) outs(%[[R]] :
  %r = linalg.exp ins(%w : tensor<16xf32>) outs(%w : tensor<16xf32>) -> tensor<16xf32>
  return %r : tensor<16xf32>
}

// Tests the same beside a wait: the input of a collective is written in place after the wait, and not before.
// CHECK-LABEL: func @after_the_wait
func.func @after_the_wait(%x: tensor<8xf32>) -> (tensor<16xf32>, tensor<8xf32>) {
  %e = tensor.empty() : tensor<8xf32>
  // CHECK: linalg.exp ins(%arg0 : {{.*}}) outs(%[[A:[a-z0-9_]+]] :
  %a = linalg.exp ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %s = comm.all_gather %a on @dp : (tensor<8xf32>) -> !comm.future<tensor<16xf32>>
  %w = comm.wait %s : !comm.future<tensor<16xf32>>
  // CHECK: linalg.exp ins(%[[A]] : {{.*}}) outs(%[[A]] :
  %b = linalg.exp ins(%a : tensor<8xf32>) outs(%a : tensor<8xf32>) -> tensor<8xf32>
  return %w, %b : tensor<16xf32>, tensor<8xf32>
}
// CHECK-LABEL: func @before_the_wait
func.func @before_the_wait(%x: tensor<8xf32>) -> (tensor<16xf32>, tensor<8xf32>) {
  %e = tensor.empty() : tensor<8xf32>
  // CHECK: linalg.exp ins(%arg0 : {{.*}}) outs(%[[A:[a-z0-9_]+]] :
  %a = linalg.exp ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %s = comm.all_gather %a on @dp : (tensor<8xf32>) -> !comm.future<tensor<16xf32>>
  // CHECK: comm.all_gather
  // CHECK: %[[OTHER:[a-z0-9_]+]] = memref.alloc()
  // CHECK: linalg.exp ins(%[[A]] : {{.*}}) outs(%[[OTHER]] :
  %b = linalg.exp ins(%a : tensor<8xf32>) outs(%a : tensor<8xf32>) -> tensor<8xf32>
  %w = comm.wait %s : !comm.future<tensor<16xf32>>
  return %w, %b : tensor<16xf32>, tensor<8xf32>
}

// Tests that a destination is reused: the result of an all-reduce in place, and what follows, are one buffer.
// CHECK-LABEL: func @in_place
func.func @in_place(%x: tensor<8xf32>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  // CHECK: %[[A:[a-z0-9_]+]] = memref.alloc()
  %a = linalg.exp ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  // CHECK: comm.all_reduce sum %[[A]] into %[[A]]
  %s = comm.all_reduce sum %a into %a on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %w = comm.wait %s : !comm.future<tensor<8xf32>>
  // CHECK-NOT: memref.alloc
  // CHECK: linalg.exp ins(%[[A]] : {{.*}}) outs(%[[A]] :
  %b = linalg.exp ins(%w : tensor<8xf32>) outs(%w : tensor<8xf32>) -> tensor<8xf32>
  // CHECK: return %[[A]]
  return %b : tensor<8xf32>
}

// Tests that a tensor without contents that a collective in flight writes is not lent to another operation.
// CHECK-LABEL: func @destination_in_flight
func.func @destination_in_flight(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %e = tensor.empty() : tensor<8xf32>
  // CHECK-COUNT-2: memref.alloc()
  // CHECK: comm.all_reduce sum %arg0 into %[[D:[a-z0-9_]+]] on
  %s = comm.all_reduce sum %x into %e on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  // CHECK-NOT: outs(%[[D]] :
  // CHECK: linalg.exp ins(%arg0 : {{.*}}) outs(%[[OTHER:[a-z0-9_]+]] :
  %f = linalg.exp ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %w = comm.wait %s : !comm.future<tensor<8xf32>>
  // CHECK: return %[[D]], %[[OTHER]]
  return %w, %f : tensor<8xf32>, tensor<8xf32>
}

// Tests that results of waits that other waits give too are not overwritten.
// CHECK-LABEL: func @second_wait
func.func @second_wait(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %s = comm.all_reduce sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %w0 = comm.wait %s : !comm.future<tensor<8xf32>>
  // CHECK: linalg.exp ins(%[[W:[a-z0-9_]+]] : {{.*}}) outs(%[[OTHER:alloc[_0-9]*]] :
  %e = linalg.exp ins(%w0 : tensor<8xf32>) outs(%w0 : tensor<8xf32>) -> tensor<8xf32>
  %w1 = comm.wait %s : !comm.future<tensor<8xf32>>
  return %w1, %e : tensor<8xf32>, tensor<8xf32>
}

// Tests arguments: the caller's stay as they are, donated ones are reused.
// CHECK-LABEL: func @arguments
func.func @arguments(%x: tensor<8xf32>, %y: tensor<8xf32> {comm.donated}) -> (tensor<8xf32>, tensor<8xf32>) {
  // CHECK: linalg.exp ins(%arg0 : {{.*}}) outs(%[[OTHER:alloc[_0-9]*]] :
  %b = linalg.exp ins(%x : tensor<8xf32>) outs(%x : tensor<8xf32>) -> tensor<8xf32>
  // CHECK: linalg.exp ins(%arg1 : {{.*}}) outs(%arg1 :
  %c = linalg.exp ins(%y : tensor<8xf32>) outs(%y : tensor<8xf32>) -> tensor<8xf32>
  return %b, %c : tensor<8xf32>, tensor<8xf32>
}

// Tests packing, gathering and unpacking: one buffer for the bucket, of which the slice is a part, and no copies but the
// packing's own.
// CHECK-LABEL: func @bucket
func.func @bucket(%x: tensor<8xf32>) -> tensor<16xf32> {
  // CHECK: %[[B:[a-z0-9_]+]] = memref.alloc()
  // CHECK: %[[S:[a-z0-9_]+]], %{{.*}} = comm.fsdp.all_gather_copy_in %arg0 into %[[B]]
  %slice, %b = comm.fsdp.all_gather_copy_in %x on @dp : (tensor<8xf32>) -> (tensor<8xf32>, tensor<16xf32>)
  // CHECK: comm.all_gather %[[S]] into %[[B]]
  %f = comm.all_gather %slice into %b on @dp : (tensor<8xf32>) -> !comm.future<tensor<16xf32>>
  // CHECK-NOT: memref.alloc
  %w = comm.wait %f : !comm.future<tensor<16xf32>>
  // CHECK: linalg.exp {{.*}} outs(%[[B]] :
  %r = linalg.exp ins(%w : tensor<16xf32>) outs(%w : tensor<16xf32>) -> tensor<16xf32>
  return %r : tensor<16xf32>
}

// Tests that a view and what it is a view of are one buffer: a write of the one copies where the other is read.
// CHECK-LABEL: func @views
func.func @views(%x: tensor<8xf32>) -> (tensor<2x4xf32>, tensor<8xf32>) {
  // CHECK: comm.compute "make"(%arg0, %[[A:[a-z0-9_]+]]) mutates
  %a = comm.compute "make"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %v = comm.compute "view"(%a) aliases [0] : (tensor<8xf32>) -> tensor<2x4xf32>
  // CHECK: linalg.exp ins(%[[V:[a-z0-9_]+]] : {{.*}}) outs(%[[OTHER:alloc[_0-9]*]] :
  %e = linalg.exp ins(%v : tensor<2x4xf32>) outs(%v : tensor<2x4xf32>) -> tensor<2x4xf32>
  return %e, %a : tensor<2x4xf32>, tensor<8xf32>
}

// Tests that a function gets the whole of a buffer in another shape as it is, and no copy that its writes would be lost in.
// CHECK-LABEL: func private @writes_argument
func.func private @writes_argument(%x: tensor<2x4xf32>) {
  comm.compute "update"(%x) mutates [0] : (tensor<2x4xf32>) -> ()
  return
}
// CHECK-LABEL: func @passes_view
func.func @passes_view(%x: tensor<8xf32>) {
  // CHECK: %[[VIEW:.*]] = memref.reinterpret_cast {{.*}} to memref<2x4xf32>
  // CHECK-NEXT: call @writes_argument(%[[VIEW]])
  %v = comm.compute "view"(%x) aliases [0] : (tensor<8xf32>) -> tensor<2x4xf32>
  func.call @writes_argument(%v) : (tensor<2x4xf32>) -> ()
  return
}

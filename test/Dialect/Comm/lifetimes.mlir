// RUN: comm-opt %s --optimize-allocation-liveness | FileCheck %s

// Tests that no buffer in flight is freed before its wait, nor a destination before the last use of the wait's result.
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @in_flight
func.func @in_flight(%v: f32) -> f32 {
  %c0 = arith.constant 0 : index
  // CHECK: %[[X:.*]] = memref.alloc() : memref<4xf32>
  %x = memref.alloc() : memref<4xf32>
  // CHECK: %[[Y:.*]] = memref.alloc() : memref<16xf32>
  %y = memref.alloc() : memref<16xf32>
  memref.store %v, %x[%c0] : memref<4xf32>
  // CHECK: comm.all_gather
  // CHECK-NOT: dealloc
  %f = comm.all_gather %x into %y on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  comm.compute "other"() side_effects : () -> ()
  // CHECK: comm.wait
  // CHECK-NEXT: memref.dealloc %[[X]]
  // CHECK-NOT: dealloc
  %w = comm.wait %f keeping (%x, %y : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
  // CHECK: memref.load
  // CHECK-NEXT: memref.dealloc %[[Y]]
  %r = memref.load %w[%c0] : memref<16xf32>
  comm.compute "other"() side_effects : () -> ()
  memref.dealloc %x : memref<4xf32>
  memref.dealloc %y : memref<16xf32>
  return %r : f32
}

// Tests the same through the packing operations and views of opaque computation.
// CHECK-LABEL: func @packed
func.func @packed(%x: memref<4xf32>) -> f32 {
  %c0 = arith.constant 0 : index
  // CHECK: %[[B:.*]] = memref.alloc() : memref<16xf32>
  %b = memref.alloc() : memref<16xf32>
  // CHECK: %[[P:.*]] = memref.alloc() : memref<4x4xf32>
  %p = memref.alloc() : memref<4x4xf32>
  %slice, %buffer = comm.fsdp.all_gather_copy_in %x into %b : memref<16xf32> on @dp : (memref<4xf32>) -> (memref<4xf32>, memref<16xf32>)
  // CHECK: comm.all_gather
  // CHECK-NOT: dealloc
  %f = comm.all_gather %slice into %buffer on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  // CHECK: comm.wait
  %w = comm.wait %f keeping (%slice, %buffer : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
  // CHECK-NEXT: comm.fsdp.split_with_sizes_copy
  // CHECK-NEXT: memref.dealloc %[[B]]
  // CHECK-NOT: dealloc
  %q = comm.fsdp.split_with_sizes_copy %w into %p : memref<4x4xf32> sizes [4] : (memref<16xf32>) -> memref<4x4xf32>
  %v = comm.compute "view"(%q) aliases [0] : (memref<4x4xf32>) -> memref<16xf32>
  // CHECK: memref.load
  // CHECK-NEXT: memref.dealloc %[[P]]
  %r = memref.load %v[%c0] : memref<16xf32>
  comm.compute "other"() side_effects : () -> ()
  memref.dealloc %b : memref<16xf32>
  memref.dealloc %p : memref<4x4xf32>
  return %r : f32
}

// RUN: comm-opt %s --buffer-deallocation-pipeline --optimize-allocation-liveness | FileCheck %s

// Tests that ownership-based deallocation frees buffers in flight after their wait, and results after their last use.
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
  return %r : f32
}

// Tests that a buffer in flight at the end of a function is freed by nobody before the wait in the caller: a result of
// the callee.
// CHECK-LABEL: func @escapes
func.func @escapes(%x: memref<4xf32>) -> (!comm.future<memref<16xf32>>, memref<16xf32>) {
  %y = memref.alloc() : memref<16xf32>
  // CHECK: comm.all_gather
  // CHECK-NOT: dealloc
  %f = comm.all_gather %x into %y on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  // CHECK: return
  return %f, %y : !comm.future<memref<16xf32>>, memref<16xf32>
}

// Tests a start in one iteration and its wait in the next.
// CHECK-LABEL: func @loop
func.func @loop(%x: memref<4xf32>, %n: index) -> f32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // CHECK: %[[Y:.*]] = memref.alloc
  %y = memref.alloc() : memref<16xf32>
  %f0 = comm.all_gather %x into %y on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  // CHECK: scf.for
  // CHECK-NOT: dealloc
  %last = scf.for %i = %c0 to %n step %c1 iter_args(%f = %f0) -> (!comm.future<memref<16xf32>>) {
    %w = comm.wait %f keeping (%x, %y : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
    %g = comm.all_gather %x into %y on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
    // CHECK: scf.yield
    scf.yield %g : !comm.future<memref<16xf32>>
  }
  // CHECK: comm.wait
  // CHECK-NOT: dealloc
  %w = comm.wait %last keeping (%x, %y : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
  // CHECK: memref.load
  // CHECK: memref.dealloc %[[Y]]
  %r = memref.load %w[%c0] : memref<16xf32>
  return %r : f32
}

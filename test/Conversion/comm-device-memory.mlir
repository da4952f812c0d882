// RUN: comm-opt %s --comm-device-memory --remarks-filter=comm-device-memory --split-input-file --verify-diagnostics | FileCheck %s

// Tests that a contiguous copy is one of the runtime's, in the order of the stream.
// CHECK-LABEL: func @copy
func.func @copy(%a: memref<4x8xf32>, %b: memref<4x8xf32>) {
  // CHECK: %[[CONTEXT:.*]] = llvm.call @commrt_current
  // CHECK: %[[ON_DEVICE:.*]] = llvm.mlir.constant(2 : i32)
  // CHECK: llvm.call @commrt_copy(%[[CONTEXT]], %{{.*}}, %{{.*}}, %{{.*}}, %[[ON_DEVICE]], %{{.*}})
  // CHECK-NOT: memref.copy
  memref.copy %a, %b : memref<4x8xf32> to memref<4x8xf32>
  return
}

// -----

// Tests that the host reads and writes single elements by way of its stack.
// CHECK-LABEL: func @elements
func.func @elements(%a: memref<4xindex>, %i: index, %x: index) -> index {
  // CHECK: %[[ELEMENT:.*]] = memref.alloca() : memref<index>
  // CHECK: %[[FROM_DEVICE:.*]] = llvm.mlir.constant(1 : i32)
  // CHECK: llvm.call @commrt_copy({{.*}}, %[[FROM_DEVICE]], {{.*}})
  // CHECK: %[[Y:.*]] = memref.load %[[ELEMENT]][]
  // expected-remark @+1 {{Access=load}}
  %y = memref.load %a[%i] : memref<4xindex>
  // CHECK: memref.store %{{.*}}, %[[ELEMENT]][]
  // CHECK: %[[TO_DEVICE:.*]] = llvm.mlir.constant(0 : i32)
  // CHECK: llvm.call @commrt_copy({{.*}}, %[[TO_DEVICE]], {{.*}})
  // expected-remark @+1 {{Access=store}}
  memref.store %x, %a[%i] : memref<4xindex>
  // CHECK: return %[[Y]]
  return %y : index
}

// -----

// Tests that memory of the host stays the host's.
memref.global "private" constant @table : memref<4xindex> = dense<[1, 2, 3, 4]>
// CHECK-LABEL: func @host
func.func @host(%i: index) -> index {
  // CHECK-NOT: call @commrt_copy
  %table = memref.get_global @table : memref<4xindex>
  %x = memref.load %table[%i] : memref<4xindex>
  %own = memref.alloca() : memref<4xindex>
  memref.store %x, %own[%i] : memref<4xindex>
  %view = memref.cast %own : memref<4xindex> to memref<?xindex>
  %y = memref.load %view[%i] : memref<?xindex>
  return %y : index
}

// -----

// Tests that a value carried through a loop is no index of it: a training loop may ask for its loss.
// CHECK-LABEL: func @condition
func.func @condition(%loss: memref<f32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    // CHECK: call @commrt_copy
    // expected-remark @+1 {{Access=load}}
    %x = memref.load %loss[] : memref<f32>
    func.call @report(%x) : (f32) -> ()
  }
  return
}
func.func private @report(f32)

// -----

// Tests that a loop of the host over elements is refused.
func.func @loop(%a: memref<4xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %j = arith.muli %i, %c1 : index
    // expected-error @+1 {{expected a linalg operation for a computation on elements of device memory, got a loop of the host that loads them one by one}}
    %x = memref.load %a[%j] : memref<4xf32>
    memref.store %x, %a[%c0] : memref<4xf32>
  }
  return
}

// -----

// Tests that other accesses of the host are refused.
func.func @atomic(%a: memref<4xf32>, %i: index, %x: f32) -> f32 {
  // expected-error @+1 {{expected no access of the host to device memory; use a linalg operation}}
  %y = memref.atomic_rmw addf %x, %a[%i] : (f32, memref<4xf32>) -> f32
  return %y : f32
}

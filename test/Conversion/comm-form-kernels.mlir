// RUN: comm-opt %s --comm-form-kernels --split-input-file | FileCheck %s

// Tests that a computation of several dimensions becomes one launch: a thread per element of the result, in blocks of 256.
// CHECK-LABEL: func @elementwise
// CHECK-SAME: (%[[A:.*]]: memref<?x8xf32>, %[[B:.*]]: memref<?x8xf32>)
func.func @elementwise(%a: memref<?x8xf32>, %b: memref<?x8xf32>) {
  // CHECK: arith.muli
  // CHECK: %[[N:.*]] = arith.muli
  // CHECK: %[[LAST:.*]] = arith.addi %[[N]], %c255
  // CHECK: %[[BLOCKS:.*]] = arith.divui %[[LAST]], %c256
  // CHECK: gpu.launch blocks(%[[BLOCK:[^,]*]], %{{.*}}, %{{.*}}) in (%{{.*}} = %[[BLOCKS]], {{.*}}) threads(%[[THREAD:[^,]*]], {{.*}} = %c256
  // CHECK: %[[BEGIN:.*]] = arith.muli %[[BLOCK]], %c256
  // CHECK: %[[I:.*]] = arith.addi %[[BEGIN]], %[[THREAD]]
  // CHECK: %[[INSIDE:.*]] = arith.cmpi ult, %[[I]], %[[N]]
  // CHECK: scf.if %[[INSIDE]]
  // CHECK: memref.load %[[A]]
  // CHECK: math.exp
  // CHECK: memref.store {{.*}}, %[[B]]
  // CHECK: gpu.terminator
  // CHECK-NOT: scf.parallel
  linalg.exp ins(%a : memref<?x8xf32>) outs(%b : memref<?x8xf32>)
  return
}

// -----

// Tests that a reduction stays in its thread and in its order, also if it comes before a parallel dimension.
// CHECK-LABEL: func @columns
func.func @columns(%a: memref<16x8xf32>, %sum: memref<8xf32>) {
  // CHECK-NOT: scf.for
  // CHECK: gpu.launch
  // CHECK: scf.if
  // CHECK: scf.for %{{.*}} = %c0{{.*}} to %c16{{.*}} step %c1
  // CHECK: arith.addf
  // CHECK-NOT: gpu.launch
  linalg.reduce ins(%a : memref<16x8xf32>) outs(%sum : memref<8xf32>) dimensions = [0]
    (%in: f32, %out: f32) {
      %0 = arith.addf %out, %in : f32
      linalg.yield %0 : f32
    }
  return
}

// -----

// Tests that what has no parallel dimension runs in one thread of one block.
// CHECK-LABEL: func @total
func.func @total(%a: memref<16xf32>, %sum: memref<f32>) {
  // CHECK: gpu.launch
  // CHECK: scf.for
  linalg.reduce ins(%a : memref<16xf32>) outs(%sum : memref<f32>) dimensions = [0]
    (%in: f32, %out: f32) {
      %0 = arith.addf %out, %in : f32
      linalg.yield %0 : f32
    }
  // CHECK: gpu.launch
  // CHECK-NOT: scf.for
  // CHECK: memref.store
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%sum : memref<f32>)
  return
}

// -----

// Tests that a copy with gaps is a kernel, and a contiguous one is not.
// CHECK-LABEL: func @copies
func.func @copies(%a: memref<4x8xf32>, %b: memref<4x4xf32>, %c: memref<4x8xf32>) {
  %part = memref.subview %a[0, 2] [4, 4] [1, 1] : memref<4x8xf32> to memref<4x4xf32, strided<[8, 1], offset: 2>>
  // CHECK: gpu.launch
  // CHECK: memref.load
  // CHECK: memref.store
  memref.copy %part, %b : memref<4x4xf32, strided<[8, 1], offset: 2>> to memref<4x4xf32>
  // CHECK: memref.copy
  // CHECK-NOT: gpu.launch
  memref.copy %a, %c : memref<4x8xf32> to memref<4x8xf32>
  return
}

// -----

// Tests that loops which a program says are parallel are kernels, together with the operations in them, unless they call
// something.
// CHECK-LABEL: func @loops
func.func @loops(%a: memref<4x8xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // CHECK: gpu.launch
  // CHECK: scf.for
  // CHECK: math.exp
  scf.forall (%i) in (4) {
    %row = memref.subview %a[%i, 0] [1, 8] [1, 1] : memref<4x8xf32> to memref<8xf32, strided<[1], offset: ?>>
    linalg.exp ins(%row : memref<8xf32, strided<[1], offset: ?>>) outs(%row : memref<8xf32, strided<[1], offset: ?>>)
  }
  // CHECK-NOT: gpu.launch
  // CHECK: scf.parallel
  scf.parallel (%i) = (%c0) to (%n) step (%c1) {
    func.call @something(%i) : (index) -> ()
  }
  return
}
func.func private @something(index)

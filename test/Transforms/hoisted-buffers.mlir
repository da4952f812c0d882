// Tests that buffers which are allocated in front of a loop, as --buffer-loop-hoisting leaves them, are told apart from each
// other and from the arguments, unless somebody may have kept an address: stored it, carried it, or passed it to code that is
// not seen.

// RUN: comm-opt %s --reorder-comm-overlap="bucketing=false table=false" | FileCheck %s

comm.group @dp #comm.iota<[1, 8]>

// The second product goes before the wait.
// CHECK-LABEL: func.func @hoisted
// CHECK: scf.for
// CHECK: comm.all_reduce
// CHECK-NEXT: linalg.matmul
// CHECK-NEXT: comm.wait
func.func @hoisted(%x: memref<1024x1024xf32>, %g: memref<1024x1024xf32>) {
  %s1 = memref.alloc() : memref<1024x1024xf32>
  %s2 = memref.alloc() : memref<1024x1024xf32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    linalg.matmul ins(%x, %g : memref<1024x1024xf32>, memref<1024x1024xf32>) outs(%s1 : memref<1024x1024xf32>)
    %f = comm.all_reduce sum %s1 into %s1 on @dp : (memref<1024x1024xf32>) -> !comm.future<memref<1024x1024xf32>>
    %q = comm.wait %f : !comm.future<memref<1024x1024xf32>>
    linalg.matmul ins(%x, %g : memref<1024x1024xf32>, memref<1024x1024xf32>) outs(%s2 : memref<1024x1024xf32>)
    linalg.matmul ins(%s1, %g : memref<1024x1024xf32>, memref<1024x1024xf32>) outs(%s2 : memref<1024x1024xf32>)
  }
  memref.dealloc %s1 : memref<1024x1024xf32>
  memref.dealloc %s2 : memref<1024x1024xf32>
  return
}

// What is loaded may be the buffer whose address was stored: a view of it, before the loop.
// CHECK-LABEL: func.func @stored
// CHECK: scf.for
// CHECK: comm.all_reduce
// CHECK-NEXT: comm.wait
// CHECK-NEXT: linalg.matmul
func.func @stored(%x: memref<1024x1024xf32>, %g: memref<1024x1024xf32>, %table: memref<1xmemref<1024x1024xf32>>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %s1 = memref.alloc() : memref<1024x1024xf32>
  %view = memref.cast %s1 : memref<1024x1024xf32> to memref<?x?xf32>
  %same = memref.cast %view : memref<?x?xf32> to memref<1024x1024xf32>
  memref.store %same, %table[%c0] : memref<1xmemref<1024x1024xf32>>
  %s2 = memref.load %table[%c0] : memref<1xmemref<1024x1024xf32>>
  scf.for %i = %c0 to %c4 step %c1 {
    linalg.matmul ins(%x, %g : memref<1024x1024xf32>, memref<1024x1024xf32>) outs(%s1 : memref<1024x1024xf32>)
    %f = comm.all_reduce sum %s1 into %s1 on @dp : (memref<1024x1024xf32>) -> !comm.future<memref<1024x1024xf32>>
    %q = comm.wait %f : !comm.future<memref<1024x1024xf32>>
    linalg.matmul ins(%x, %g : memref<1024x1024xf32>, memref<1024x1024xf32>) outs(%s2 : memref<1024x1024xf32>)
    linalg.matmul ins(%s1, %g : memref<1024x1024xf32>, memref<1024x1024xf32>) outs(%s2 : memref<1024x1024xf32>)
  }
  return
}

func.func private @same(memref<1024x1024xf32>) -> memref<1024x1024xf32>

// What a function returns may be what it was given.
// CHECK-LABEL: func.func @called
// CHECK: scf.for
// CHECK: comm.all_reduce
// CHECK-NEXT: comm.wait
// CHECK-NEXT: linalg.matmul
func.func @called(%x: memref<1024x1024xf32>, %g: memref<1024x1024xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %s1 = memref.alloc() : memref<1024x1024xf32>
  %s2 = call @same(%s1) : (memref<1024x1024xf32>) -> memref<1024x1024xf32>
  scf.for %i = %c0 to %c4 step %c1 {
    linalg.matmul ins(%x, %g : memref<1024x1024xf32>, memref<1024x1024xf32>) outs(%s1 : memref<1024x1024xf32>)
    %f = comm.all_reduce sum %s1 into %s1 on @dp : (memref<1024x1024xf32>) -> !comm.future<memref<1024x1024xf32>>
    %q = comm.wait %f : !comm.future<memref<1024x1024xf32>>
    linalg.matmul ins(%x, %g : memref<1024x1024xf32>, memref<1024x1024xf32>) outs(%s2 : memref<1024x1024xf32>)
    linalg.matmul ins(%s1, %g : memref<1024x1024xf32>, memref<1024x1024xf32>) outs(%s2 : memref<1024x1024xf32>)
  }
  return
}

// What a loop around carries may be either buffer.
// CHECK-LABEL: func.func @carried
// CHECK: scf.for
// CHECK: scf.for
// CHECK: comm.all_reduce
// CHECK-NEXT: comm.wait
// CHECK-NEXT: linalg.matmul
func.func @carried(%x: memref<1024x1024xf32>, %g: memref<1024x1024xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %s1 = memref.alloc() : memref<1024x1024xf32>
  %other = memref.alloc() : memref<1024x1024xf32>
  %last = scf.for %k = %c0 to %c4 step %c1 iter_args(%s2 = %other) -> (memref<1024x1024xf32>) {
    scf.for %i = %c0 to %c4 step %c1 {
      linalg.matmul ins(%x, %g : memref<1024x1024xf32>, memref<1024x1024xf32>) outs(%s1 : memref<1024x1024xf32>)
      %f = comm.all_reduce sum %s1 into %s1 on @dp : (memref<1024x1024xf32>) -> !comm.future<memref<1024x1024xf32>>
      %q = comm.wait %f : !comm.future<memref<1024x1024xf32>>
      linalg.matmul ins(%x, %g : memref<1024x1024xf32>, memref<1024x1024xf32>) outs(%s2 : memref<1024x1024xf32>)
      linalg.matmul ins(%s1, %g : memref<1024x1024xf32>, memref<1024x1024xf32>) outs(%s2 : memref<1024x1024xf32>)
    }
    scf.yield %s1 : memref<1024x1024xf32>
  }
  return
}

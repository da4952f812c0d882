// Tests that views which drop a dimension of size 1 and have steps are the right elements, although upstream looks for the
// dropped dimensions among the strides of the source. Each function computes the same by views without steps.

// RUN: comm-run %s --entry stepped --ranks 2 --output %t/stepped
// RUN: comm-run %s --entry plain --ranks 2 --output %t/plain
// RUN: diff -r %t/stepped %t/plain
comm.group @dp #comm.iota<[1, 2]>

func.func @stepped(%a: memref<4x4xf32>, %x: memref<1xf32>, %b: memref<2x4x2xf32>) -> (memref<4x4xf32>, memref<1x2xf32>) {
  // The kept dimension has size 1 and the stride 8, which no dimension of the source has.
  %r = memref.alloc() : memref<4x4xf32>
  memref.copy %a, %r : memref<4x4xf32> to memref<4x4xf32>
  %s = memref.subview %r[1, 0] [1, 1] [2, 1] : memref<4x4xf32> to memref<1xf32, strided<[8], offset: 4>>
  %f = comm.all_reduce sum %x into %s on @dp : (memref<1xf32>) -> !comm.future<memref<1xf32, strided<[8], offset: 4>>>
  %w = comm.wait %f keeping (%x, %s : memref<1xf32>, memref<1xf32, strided<[8], offset: 4>>) : !comm.future<memref<1xf32, strided<[8], offset: 4>>>
  // The kept dimension has the stride that the dropped one has in the source.
  %t = memref.subview %b[0, 1, 0] [1, 1, 2] [1, 4, 1] : memref<2x4x2xf32> to memref<1x2xf32, strided<[8, 1], offset: 2>>
  %c = memref.alloc() : memref<1x2xf32>
  memref.copy %t, %c : memref<1x2xf32, strided<[8, 1], offset: 2>> to memref<1x2xf32>
  return %r, %c : memref<4x4xf32>, memref<1x2xf32>
}

func.func @plain(%a: memref<4x4xf32>, %x: memref<1xf32>, %b: memref<2x4x2xf32>) -> (memref<4x4xf32>, memref<1x2xf32>) {
  %r = memref.alloc() : memref<4x4xf32>
  memref.copy %a, %r : memref<4x4xf32> to memref<4x4xf32>
  %d = memref.alloc() : memref<1xf32>
  %f = comm.all_reduce sum %x into %d on @dp : (memref<1xf32>) -> !comm.future<memref<1xf32>>
  %w = comm.wait %f keeping (%x, %d : memref<1xf32>, memref<1xf32>) : !comm.future<memref<1xf32>>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %v = memref.load %d[%c0] : memref<1xf32>
  memref.store %v, %r[%c1, %c0] : memref<4x4xf32>
  %c = memref.alloc() : memref<1x2xf32>
  %t = memref.subview %b[0, 1, 0] [1, 1, 2] [1, 1, 1] : memref<2x4x2xf32> to memref<1x2xf32, strided<[2, 1], offset: 2>>
  memref.copy %t, %c : memref<1x2xf32, strided<[2, 1], offset: 2>> to memref<1x2xf32>
  return %r, %c : memref<4x4xf32>, memref<1x2xf32>
}

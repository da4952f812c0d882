// Tests that a function that calls itself through a pointer has symmetric memory of its own in each call.

// RUN: comm-opt %s --comm-realize-buffers=one-shot-threshold-bytes=0 -o %t.mlir
// RUN: comm-run %t.mlir --compare %s
// RUN: comm-opt %t.mlir --comm-bufferize --comm-plan-buffers | FileCheck %s
// CHECK-NOT: comm_arena
// CHECK-LABEL: func.func private @step
// CHECK: memref.alloc() {{.*}}#comm.symmetric<@dp>
comm.group @dp #comm.iota<[1, 2]>

func.func private @step(%x: memref<16xf32>, %left: index) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %sum = memref.alloc() : memref<16xf32>
  memref.copy %x, %sum : memref<16xf32> to memref<16xf32>
  %f = comm.all_reduce sum %sum into %sum on @dp : (memref<16xf32>) -> !comm.future<memref<16xf32>>
  %w = comm.wait %f keeping (%sum : memref<16xf32>) : !comm.future<memref<16xf32>>
  %more = arith.cmpi sgt, %left, %zero : index
  scf.if %more {
    linalg.add ins(%x, %x : memref<16xf32>, memref<16xf32>) outs(%x : memref<16xf32>)
    %less = arith.subi %left, %one : index
    func.call @again(%x, %less) : (memref<16xf32>, index) -> ()
  }
  linalg.add ins(%x, %sum : memref<16xf32>, memref<16xf32>) outs(%x : memref<16xf32>)
  memref.dealloc %sum : memref<16xf32>
  return
}

func.func private @again(%x: memref<16xf32>, %left: index) {
  %step = func.constant @step : (memref<16xf32>, index) -> ()
  func.call_indirect %step(%x, %left) : (memref<16xf32>, index) -> ()
  return
}

func.func @main(%x: memref<16xf32>) -> memref<16xf32> {
  %two = arith.constant 2 : index
  func.call @step(%x, %two) : (memref<16xf32>, index) -> ()
  %result = memref.alloc() : memref<16xf32>
  memref.copy %x, %result : memref<16xf32> to memref<16xf32>
  return %result : memref<16xf32>
}

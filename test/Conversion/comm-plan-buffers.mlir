// RUN: comm-opt %s --comm-plan-buffers --remarks-filter=comm-plan-buffers --verify-diagnostics --split-input-file | FileCheck %s
// RUN: not comm-opt %s --comm-plan-buffers=alignment-bytes=96 --split-input-file 2>&1 | FileCheck %s --check-prefix=BAD
// BAD: error: alignment-bytes: expected a power of two, got 96

// Tests that buffers that live apart share space, and that what is in flight does not until its wait.
comm.group @dp #comm.iota<[1, 2]>
// CHECK-LABEL: func @in_flight
// CHECK-SAME: (%[[X:.*]]: memref<128xf32>)
func.func @in_flight(%x: memref<128xf32>) {
  // CHECK: %[[ARENA:.*]] = memref.alloc() {bufferization.manual_deallocation} : memref<1536xi8>
  // CHECK: %[[O0:.*]] = arith.constant [[A:[0-9]+]] : index
  // CHECK: %[[V0:.*]] = memref.view %[[ARENA]][%[[O0]]][] : memref<1536xi8> to memref<128xf32>
  // expected-remark @+1 {{Buffers=3, Bytes=1536, Kind=arena, LimitingFactor=none, LiveBytes=1536}}
  %a = memref.alloc() : memref<128xf32>
  // CHECK: memref.view
  %b = memref.alloc() : memref<256xf32>
  linalg.exp ins(%x : memref<128xf32>) outs(%a : memref<128xf32>)
  // CHECK: comm.all_gather %[[V0]] into
  %f = comm.all_gather %a into %b on @dp : (memref<128xf32>) -> !comm.future<memref<256xf32>>
  %w = comm.wait %f keeping (%a, %b : memref<128xf32>, memref<256xf32>) : !comm.future<memref<256xf32>>
  // CHECK-NOT: dealloc
  memref.dealloc %a : memref<128xf32>
  // CHECK: %[[O2:.*]] = arith.constant [[A]] : index
  // CHECK: memref.view %[[ARENA]][%[[O2]]][] : memref<1536xi8> to memref<100xf32>
  %c = memref.alloc() : memref<100xf32>
  comm.compute "use"(%b, %c) mutates [1] : (memref<256xf32>, memref<100xf32>) -> ()
  memref.dealloc %b : memref<256xf32>
  memref.dealloc %c : memref<100xf32>
  // CHECK: memref.dealloc %[[ARENA]] {bufferization.manual_deallocation}
  // CHECK-NEXT: return
  return
}

// -----

// Tests loops: the body's arena is allocated around the loop, as a buffer of the function's; and symmetric memory, which has
// an arena of its own.
comm.group @dp #comm.iota<[1, 2]>
// CHECK-LABEL: func @loop
func.func @loop(%x: memref<64xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  // CHECK: %[[SYMMETRIC:.*]] = memref.get_global @comm_arena : memref<256xi8, #comm.symmetric<@dp>>
  // CHECK: %[[OUTER:.*]] = memref.alloc() {bufferization.manual_deallocation} : memref<768xi8>
  // CHECK: memref.view %[[OUTER]]{{.*}} to memref<64xf32>
  // expected-remark @+1 {{Buffers=2, Bytes=768, Kind=arena, LimitingFactor=none, LiveBytes=768}}
  %a = memref.alloc() : memref<64xf32>
  // CHECK: %[[INNER:.*]] = memref.view %[[OUTER]]{{.*}} : memref<768xi8> to memref<512xi8>
  // CHECK: %[[PART:.*]] = memref.view %[[SYMMETRIC]]{{.*}} to memref<256xi8, #comm.symmetric<@dp>>
  // CHECK: scf.for
  scf.for %i = %c0 to %n step %c1 {
    // CHECK: memref.view %[[INNER]]{{.*}} to memref<64xf32>
    // expected-remark @+1 {{Buffers=2, Bytes=512, Kind=arena, LimitingFactor=none, LiveBytes=512}}
    %b = memref.alloc() : memref<64xf32>
    %c = memref.alloc() : memref<64xf32>
    // CHECK: memref.view %[[PART]]{{.*}} to memref<64xf32, #comm.symmetric<@dp>>
    // expected-remark @+1 {{Buffers=1, Bytes=256, Kind=arena, LimitingFactor=none, LiveBytes=256}}
    %s = memref.alloc() : memref<64xf32, #comm.symmetric<@dp>>
    comm.compute "body"(%a, %b, %c, %s) mutates [1, 2, 3] : (memref<64xf32>, memref<64xf32>, memref<64xf32>, memref<64xf32, #comm.symmetric<@dp>>) -> ()
    memref.dealloc %b : memref<64xf32>
    memref.dealloc %c : memref<64xf32>
    memref.dealloc %s : memref<64xf32, #comm.symmetric<@dp>>
  }
  // CHECK-NOT: memref.dealloc %[[SYMMETRIC]]
  memref.dealloc %a : memref<64xf32>
  // CHECK: memref.dealloc %[[OUTER]]
  return
}

// -----

// Tests what is left alone: what leaves the block, what is freed twice or elsewhere, dynamic sizes, layouts, other memory
// spaces, and a buffer that would be alone.
// CHECK-LABEL: func @left_alone
// CHECK-NOT: memref.view
func.func @left_alone(%n: index, %p: i1) -> memref<8xf32> {
  %returned = memref.alloc() : memref<8xf32>
  %dynamic = memref.alloc(%n) : memref<?xf32>
  memref.dealloc %dynamic : memref<?xf32>
  %twice = memref.alloc() : memref<8xf32>
  scf.if %p {
    memref.dealloc %twice : memref<8xf32>
  } else {
    memref.dealloc %twice : memref<8xf32>
  }
  %transposed = memref.alloc() : memref<2x4xf32, affine_map<(d0, d1) -> (d1, d0)>>
  memref.dealloc %transposed : memref<2x4xf32, affine_map<(d0, d1) -> (d1, d0)>>
  %other = memref.alloc() : memref<8xf32, 3>
  memref.dealloc %other : memref<8xf32, 3>
  %alone = memref.alloc() : memref<8xf32>
  memref.dealloc %alone : memref<8xf32>
  return %returned : memref<8xf32>
}

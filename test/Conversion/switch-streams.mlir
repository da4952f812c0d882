// RUN: comm-opt %s --comm-switch-streams --split-input-file --verify-diagnostics | FileCheck %s
// RUN: comm-opt %s --comm-switch-streams --canonicalize --split-input-file --verify-diagnostics | FileCheck %s --check-prefix=REWRITTEN

comm.group @w #comm.iota<[1, 4]>

// Tests that a block begins and ends on stream 0, and that switches are only between operations of different streams.
// Upstream's canonicalization builds affine accesses with constant indices anew, without their attributes; they stay in
// their place, and so on their stream.
// CHECK-LABEL: func.func @rewritten
// REWRITTEN-LABEL: func.func @rewritten
func.func @rewritten(%a: memref<16xf32>, %y: memref<4xf32>) -> f32 {
  %k0 = arith.constant 0 : index
  %k1 = arith.constant 1 : index
  %c = arith.constant 3.0 : f32
  %entry = comm.record on 0 : !comm.event
  // CHECK: comm.await_event %{{.*}} on 2
  comm.await_event %entry on 2 : !comm.event
  // CHECK-NEXT: comm.switch_stream to 2
  // CHECK-NEXT: linalg.fill
  // REWRITTEN: comm.switch_stream to 2
  // REWRITTEN-NEXT: linalg.fill
  linalg.fill {comm.stream = 2 : i64} ins(%c : f32) outs(%a : memref<16xf32>)
  // CHECK-NEXT: affine.load
  // REWRITTEN-NEXT: affine.load %{{.*}}[1] : memref<16xf32>
  %v = affine.load %a[%k1] {comm.stream = 2 : i64} : memref<16xf32>
  // CHECK-NEXT: arith.addf
  // REWRITTEN-NEXT: arith.addf
  %u = arith.addf %v, %v : f32
  // CHECK-NEXT: affine.store
  // REWRITTEN-NEXT: affine.store %{{.*}}[0] : memref<16xf32>
  affine.store %u, %a[%k0] {comm.stream = 2 : i64} : memref<16xf32>
  // CHECK-NEXT: comm.switch_stream to 1
  // CHECK-NEXT: comm.all_reduce
  // REWRITTEN-NEXT: comm.switch_stream to 1
  %f = comm.all_reduce max %y into %y on @w {comm.stream = 1 : i64} : (memref<4xf32>) -> !comm.future<memref<4xf32>>
  // CHECK-NEXT: comm.switch_stream to 2
  // CHECK-NEXT: comm.wait
  %r = comm.wait %f keeping (%y : memref<4xf32>) {comm.stream = 2 : i64} : !comm.future<memref<4xf32>>
  %e = comm.record on 2 : !comm.event
  comm.await_event %e on 0 : !comm.event
  // CHECK: comm.switch_stream to 0
  // CHECK-NEXT: return
  // REWRITTEN: comm.switch_stream to 0
  // REWRITTEN-NEXT: return
  return %u : f32
}

// Tests that a program on one stream stays as it is.
// CHECK-LABEL: func.func @one_stream
// CHECK-NOT: switch_stream
// CHECK: return
func.func @one_stream(%a: memref<16xf32>, %c: f32) {
  linalg.fill ins(%c : f32) outs(%a : memref<16xf32>)
  return
}

// Tests that switches that are there already stay, and that an operation which lost its stream may be between them.
// CHECK-LABEL: func.func @switched
// CHECK: comm.switch_stream to 1
// CHECK-NEXT: linalg.fill
// CHECK-NEXT: comm.switch_stream to 0
// CHECK-NEXT: return
func.func @switched(%a: memref<16xf32>, %c: f32) {
  comm.switch_stream to 1
  linalg.fill ins(%c : f32) outs(%a : memref<16xf32>)
  comm.switch_stream to 0
  return
}

// -----

comm.group @w #comm.iota<[1, 4]>

// Tests that an operation of this dialect on another stream than its own is refused.
func.func @elsewhere(%y: memref<4xf32>) {
  comm.switch_stream to 1
  // expected-error@below {{expected to be on stream 2, got stream 1 from the last 'comm.switch_stream' before it}}
  %f = comm.all_reduce max %y into %y on @w {comm.stream = 2 : i64} : (memref<4xf32>) -> !comm.future<memref<4xf32>>
  comm.switch_stream to 0
  %r = comm.wait %f keeping (%y : memref<4xf32>) : !comm.future<memref<4xf32>>
  return
}

// -----

// Tests that a block has to end on stream 0.
func.func @ends_elsewhere(%a: memref<16xf32>, %c: f32) {
  comm.switch_stream to 1
  linalg.fill ins(%c : f32) outs(%a : memref<16xf32>)
  // expected-error@below {{expected to be on stream 0, got stream 1 from the last 'comm.switch_stream' before it}}
  return
}

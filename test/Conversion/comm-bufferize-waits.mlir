// RUN: comm-opt %s --comm-bufferize --split-input-file | FileCheck %s
// RUN: comm-opt %s --comm-bufferize --comm-plan-buffers --split-input-file | FileCheck %s --check-prefix=PLAN

// Tests that a buffer whose wait may not run lives to the end of the block, behind a wait that does.
comm.group @dp #comm.iota<[1, 2]>
// CHECK-LABEL: func @one_side
func.func @one_side(%x: tensor<64xf32>, %c: i1) -> tensor<64xf32> {
  // CHECK: comm.compute "neg"(%{{.*}}, %[[A:[a-z0-9_]+]])
  %a = comm.compute "neg"(%x) : (tensor<64xf32>) -> tensor<64xf32>
  // CHECK: %[[F:.*]] = comm.broadcast %[[A]] into %[[D:[a-z0-9_]+]] on
  %f = comm.broadcast %a on @dp root 0 : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  // CHECK: scf.if
  scf.if %c {
    %w = comm.wait %f : !comm.future<tensor<64xf32>>
    comm.compute "sink"(%w) side_effects : (tensor<64xf32>) -> ()
  }
  // CHECK-NOT: memref.dealloc %[[A]] {
  // CHECK-NOT: memref.dealloc %[[D]] {
  // CHECK: comm.compute "exp"
  %b = comm.compute "exp"(%x) : (tensor<64xf32>) -> tensor<64xf32>
  // CHECK: comm.wait %[[F]] keeping (%[[A]], %[[D]] :
  // CHECK-DAG: memref.dealloc %[[A]] {
  // CHECK-DAG: memref.dealloc %[[D]] {
  // CHECK: return
  return %b : tensor<64xf32>
}

// Tests the same for a wait in a loop that may not run, and that what is in flight is not written in place before the
// block's end.
// CHECK-LABEL: func @loop
func.func @loop(%x: tensor<64xf32>, %n: index) -> tensor<64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %e = tensor.empty() : tensor<64xf32>
  // CHECK: linalg.exp ins(%arg0 : {{.*}}) outs(%[[A:[a-z0-9_]+]] :
  %a = linalg.exp ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  // CHECK: %[[F:.*]] = comm.broadcast %[[A]] into %[[D:[a-z0-9_]+]] on
  %f = comm.broadcast %a on @dp root 0 : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  scf.for %i = %c0 to %n step %c1 {
    %w = comm.wait %f : !comm.future<tensor<64xf32>>
    comm.compute "sink"(%w) side_effects : (tensor<64xf32>) -> ()
  }
  // CHECK: %[[OTHER:[a-z0-9_]+]] = memref.alloc()
  // CHECK: linalg.exp ins(%[[A]] : {{.*}}) outs(%[[OTHER]] :
  %b = linalg.exp ins(%a : tensor<64xf32>) outs(%a : tensor<64xf32>) -> tensor<64xf32>
  // CHECK: comm.wait %[[F]] keeping (%[[A]], %[[D]] :
  return %b : tensor<64xf32>
}

// Tests that nobody's wait is a wait at the end, too. comm-verify refuses such a program before.
// CHECK-LABEL: func @never
func.func @never(%x: tensor<64xf32>) -> tensor<64xf32> {
  %a = comm.compute "neg"(%x) : (tensor<64xf32>) -> tensor<64xf32>
  // CHECK: %[[F:.*]] = comm.broadcast
  %f = comm.broadcast %a on @dp root 0 : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  // CHECK: comm.compute "exp"
  %b = comm.compute "exp"(%x) : (tensor<64xf32>) -> tensor<64xf32>
  // CHECK: comm.wait %[[F]]
  return %b : tensor<64xf32>
}

// Tests that waits on both sides of a branch are certain: the life ends behind the branch, and no wait is added.
// CHECK-LABEL: func @both_sides
func.func @both_sides(%x: tensor<64xf32>, %c: i1, %d: i1) -> tensor<64xf32> {
  // CHECK: comm.compute "neg"(%{{.*}}, %[[A:[a-z0-9_]+]])
  %a = comm.compute "neg"(%x) : (tensor<64xf32>) -> tensor<64xf32>
  %f = comm.broadcast %a on @dp root 0 : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  scf.if %c {
    %w = comm.wait %f : !comm.future<tensor<64xf32>>
    comm.compute "sink"(%w) side_effects : (tensor<64xf32>) -> ()
  } else {
    scf.if %d {
      %w = comm.wait %f : !comm.future<tensor<64xf32>>
    } else {
      %w = comm.wait %f : !comm.future<tensor<64xf32>>
    }
    // CHECK: comm.compute "last"
    // CHECK-NEXT: }
    comm.compute "last"() side_effects : () -> ()
  }
  // CHECK-DAG: memref.dealloc %[[A]] {
  // CHECK-NOT: comm.wait
  // CHECK: comm.compute "exp"
  %b = comm.compute "exp"(%x) : (tensor<64xf32>) -> tensor<64xf32>
  return %b : tensor<64xf32>
}

// Tests branches between blocks: a wait that every path comes to is certain, another is not.
// CHECK-LABEL: func @blocks
func.func @blocks(%x: tensor<64xf32>, %c: i1) -> tensor<64xf32> {
  %f = comm.broadcast %x on @dp root 0 : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  // CHECK: %[[G:.*]] = comm.reduce
  // CHECK-NEXT: comm.wait %[[G]]
  // CHECK-NEXT: cf.cond_br
  %g = comm.reduce sum %x into %x on @dp root 0 : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  cf.cond_br %c, ^one, ^two
^one:
  %v = comm.wait %g : !comm.future<tensor<64xf32>>
  cf.br ^two
^two:
  %w = comm.wait %f : !comm.future<tensor<64xf32>>
  return %w : tensor<64xf32>
}

// -----

// Tests that the plan leaves a buffer alone that the program frees while it may be in flight: the runtime keeps it.
comm.group @dp #comm.iota<[1, 2]>
// PLAN-LABEL: func @freed_in_flight
func.func @freed_in_flight(%x: memref<64xf32>, %c: i1) {
  // PLAN: memref.alloc() {{.*}}: memref<256xi8>
  // PLAN: %[[A:.*]] = memref.alloc() {{.*}}: memref<64xf32>
  // PLAN: comm.broadcast %[[A]] into %[[A]]
  // PLAN: memref.dealloc %[[A]] {
  %a = memref.alloc() : memref<64xf32>
  %f = comm.broadcast %a into %a on @dp root 0 : (memref<64xf32>) -> !comm.future<memref<64xf32>>
  scf.if %c {
    %w = comm.wait %f keeping (%a : memref<64xf32>) : !comm.future<memref<64xf32>>
  }
  memref.dealloc %a : memref<64xf32>
  %b = memref.alloc() : memref<64xf32>
  comm.compute "make"(%x, %b) mutates [1] : (memref<64xf32>, memref<64xf32>) -> ()
  memref.dealloc %b : memref<64xf32>
  %d = memref.alloc() : memref<64xf32>
  comm.compute "make"(%x, %d) mutates [1] : (memref<64xf32>, memref<64xf32>) -> ()
  memref.dealloc %d : memref<64xf32>
  return
}

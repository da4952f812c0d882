// RUN: comm-opt %s --comm-plan-buffers | FileCheck %s
// RUN: comm-opt %s --comm-plan-buffers | comm-opt --comm-verify -o /dev/null

// Tests that a buffer keeps its place until every stream knows that its last reader has ended. Stream 0 does not know
// of the reader of %a on stream 2 when %b is allocated, so the two do not overlap. %c comes after the event.
// CHECK-LABEL: func.func @until_known
// CHECK: memref.alloc() {{.*}}: memref<512xi8>
// CHECK: %[[A:.*]] = arith.constant 0 : index
// CHECK: memref.view %{{.*}}[%[[A]]][] {planned}
// CHECK: %[[B:.*]] = arith.constant 256 : index
// CHECK: memref.view %{{.*}}[%[[B]]][] {planned}
// CHECK: comm.await_event %{{.*}} on 0
// CHECK: %[[C:.*]] = arith.constant 0 : index
// CHECK: memref.view %{{.*}}[%[[C]]][] {planned}
func.func @until_known(%x: memref<64xf32>, %y: memref<64xf32>) {
  %entry = comm.record on 0 : !comm.event
  comm.await_event %entry on 2 : !comm.event
  %a = memref.alloc() : memref<64xf32>
  comm.compute "neg"(%x, %a) mutates [1] {comm.stream = 2 : i64} : (memref<64xf32>, memref<64xf32>) -> ()
  comm.compute "abs"(%a, %y) mutates [1] {comm.stream = 2 : i64} : (memref<64xf32>, memref<64xf32>) -> ()
  %e = comm.record on 2 : !comm.event
  memref.dealloc %a : memref<64xf32>
  %b = memref.alloc() : memref<64xf32>
  comm.compute "ones"(%b) mutates [0] : (memref<64xf32>) -> ()
  comm.await_event %e on 0 : !comm.event
  %c = memref.alloc() : memref<64xf32>
  comm.compute "add"(%y, %b, %c) mutates [2] : (memref<64xf32>, memref<64xf32>, memref<64xf32>) -> ()
  comm.compute "abs"(%c, %y) mutates [1] : (memref<64xf32>, memref<64xf32>) -> ()
  memref.dealloc %b : memref<64xf32>
  memref.dealloc %c : memref<64xf32>
  return
}

// Tests that without streams nothing changes: buffers end where they are freed, and views are not marked.
// CHECK-LABEL: func.func @one_stream
// CHECK: memref.view %{{.*}}[%{{.*}}][] : memref<256xi8>
func.func @one_stream(%x: memref<64xf32>, %y: memref<64xf32>) {
  %a = memref.alloc() : memref<64xf32>
  comm.compute "neg"(%x, %a) mutates [1] : (memref<64xf32>, memref<64xf32>) -> ()
  comm.compute "abs"(%a, %y) mutates [1] : (memref<64xf32>, memref<64xf32>) -> ()
  memref.dealloc %a : memref<64xf32>
  %b = memref.alloc() : memref<64xf32>
  comm.compute "neg"(%x, %b) mutates [1] : (memref<64xf32>, memref<64xf32>) -> ()
  memref.dealloc %b : memref<64xf32>
  return
}

// RUN: comm-opt %s --comm-verify | FileCheck %s
// RUN: not comm-opt %s --loop-invariant-code-motion --comm-verify 2>&1 | FileCheck %s --check-prefix=MOVED

// Tests that a pass that knows no streams may move operations away from their events, and that comm-verify then says
// which stream lacks which event, in place of running the program.
// CHECK-LABEL: func.func @look_up
// MOVED: error: 'tensor.extract' op runs on stream 2 and depends on an operation of stream 0; expected stream 2 to await an event that is recorded after it
// MOVED: note: the 'tensor.extract' on stream 0 is here
func.func @look_up(%rank: tensor<1xindex>, %table: tensor<4xf32>, %to: memref<4xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %at = tensor.extract %rank[%c0] : tensor<1xindex>
    %there = comm.record on 0 : !comm.event
    comm.await_event %there on 2 : !comm.event
    %value = tensor.extract %table[%at] {comm.stream = 2 : i64} : tensor<4xf32>
    %back = comm.record on 2 : !comm.event
    comm.await_event %back on 0 : !comm.event
    memref.store %value, %to[%i] : memref<4xf32>
  }
  return
}

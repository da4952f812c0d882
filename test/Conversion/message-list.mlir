// RUN: comm-opt %s --split-input-file --comm-bufferize --comm-to-llvm --mlir-print-elementsattrs-with-hex-if-larger=-1 | FileCheck %s

// Tests that a program announces its messages in the order in which they start: loops and calls are expanded, a wait names its
// start, and waits, collectives and lists separate batches. Per step: kind, type, count, group, location, peer, tag, batch, stream,
// awaited. Sends are 9, receives 10, all-reduces 2, waits -1.

// CHECK-LABEL: module @expanded
// CHECK: llvm.mlir.global internal constant @commrt_integers_{{[0-9]+}}(dense<[9, 2, 4, {{[0-9]+}}, {{[0-9]+}}, 1, 5, 0, 0, 0,
// CHECK-SAME: 10, 2, 4, {{[0-9]+}}, {{[0-9]+}}, 1, 5, 0, 0, 0,
// CHECK-SAME: -1, 0, 0, {{[0-9]+}}, {{[0-9]+}}, 0, 0, 0, 0, 1,
// CHECK-SAME: 9, 2, 4, {{[0-9]+}}, {{[0-9]+}}, 1, 5, 1, 0, 0,
// CHECK-SAME: 10, 2, 4, {{[0-9]+}}, {{[0-9]+}}, 1, 5, 1, 0, 0,
// CHECK-SAME: -1, 0, 0, {{[0-9]+}}, {{[0-9]+}}, 0, 0, 0, 0, 4,
// CHECK-SAME: 2, 2, 4, {{[0-9]+}}, {{[0-9]+}}, 0, 0, 3, 0, 0,
// CHECK-SAME: -1, 0, 0, {{[0-9]+}}, {{[0-9]+}}, 0, 0, 0, 0, 3,
// CHECK-SAME: -1, 0, 0, {{[0-9]+}}, {{[0-9]+}}, 0, 0, 0, 0, 0,
// CHECK-SAME: -1, 0, 0, {{[0-9]+}}, {{[0-9]+}}, 0, 0, 0, 0, 6,
// CHECK-SAME: 9, 2, 4, {{[0-9]+}}, {{[0-9]+}}, 0, 0, 8, 2, 0,
// CHECK-SAME: 9, 5, 8, {{[0-9]+}}, {{[0-9]+}}, 0, 0, 8, 2, 0,
// CHECK-SAME: -1, 0, 0, {{[0-9]+}}, {{[0-9]+}}, 0, 0, 0, 0, 10,
// CHECK-SAME: -1, 0, 0, {{[0-9]+}}, {{[0-9]+}}, 0, 0, 0, 0, 11]>
// CHECK: llvm.func @commrt_module_begin
// CHECK: %[[STEPS:.*]] = llvm.mlir.constant(14 : i64)
// CHECK: llvm.call @commrt_program_messages_packed(%{{.*}}, %{{.*}}, %[[STEPS]], %{{.*}})
// CHECK: llvm.call @commrt_program_begin_packed
module @expanded {
  comm.group @world #comm.iota<[1, 2]>
  func.func @exchange(%x: memref<4xf32>, %y: memref<4xf32>) -> !comm.future<> {
    %s = comm.send %x on @world peer 1 tag 5 : (memref<4xf32>) -> !comm.future<>
    %r = comm.recv into %y on @world peer 1 tag 5 : () -> !comm.future<memref<4xf32>>
    %w = comm.wait %r : !comm.future<memref<4xf32>>
    return %s : !comm.future<>
  }
  func.func @main(%x: memref<4xf32>, %y: memref<4xf32>, %z: memref<8xi16>, %condition: i1) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %first = func.call @exchange(%x, %y) : (memref<4xf32>, memref<4xf32>) -> !comm.future<>
    %last = scf.for %i = %c0 to %c1 step %c1 iter_args(%f = %first) -> !comm.future<> {
      %s = func.call @exchange(%x, %y) : (memref<4xf32>, memref<4xf32>) -> !comm.future<>
      %a = comm.all_reduce sum %y into %y on @world : (memref<4xf32>) -> !comm.future<memref<4xf32>>
      scf.if %condition {
        %never = comm.wait %a : !comm.future<memref<4xf32>>
      }
      comm.wait %s : !comm.future<>
      comm.wait %f : !comm.future<>
      %b = comm.wait %a : !comm.future<memref<4xf32>>
      scf.yield %s : !comm.future<>
    }
    %l = comm.send %x, %z on @world peer 0 {comm.stream = 2 : i64} : (memref<4xf32>, memref<8xi16>) -> !comm.future<>
    comm.wait %l : !comm.future<>
    return
  }
}

// -----

// Tests that a program without messages says so.
// CHECK-LABEL: module @none
// CHECK: llvm.func @commrt_module_begin
// CHECK: %[[ZERO:.*]] = llvm.mlir.constant(0 : i64)
// CHECK: llvm.call @commrt_program_messages_packed(%{{.*}}, %{{.*}}, %[[ZERO]], %{{.*}})
module @none {
  func.func @main() {
    return
  }
}

// -----

// Tests that nothing is announced if a message is not certain to start.
// CHECK-LABEL: module @uncertain
// CHECK-NOT: commrt_program_messages_packed
// CHECK: llvm.call @commrt_program_begin_packed
module @uncertain {
  comm.group @world #comm.iota<[1, 2]>
  func.func @main(%x: memref<4xf32>, %condition: i1) {
    scf.if %condition {
      %s = comm.send %x on @world peer 1 : (memref<4xf32>) -> !comm.future<>
      comm.wait %s : !comm.future<>
    }
    return
  }
}

// -----

// Tests that nothing is announced if a function that sends is called by its address.
// CHECK-LABEL: module @pointer
// CHECK-NOT: commrt_program_messages_packed
// CHECK: llvm.call @commrt_program_begin_packed
module @pointer {
  comm.group @world #comm.iota<[1, 2]>
  func.func private @send(%x: memref<4xf32>) {
    %s = comm.send %x on @world peer 1 : (memref<4xf32>) -> !comm.future<>
    comm.wait %s : !comm.future<>
    return
  }
  func.func @main(%x: memref<4xf32>) {
    %send = func.constant @send : (memref<4xf32>) -> ()
    func.call_indirect %send(%x) : (memref<4xf32>) -> ()
    return
  }
}

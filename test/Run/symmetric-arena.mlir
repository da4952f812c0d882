// Tests that the symmetric memory of a function is made once, when the program begins, and found in every call: also in a
// loop's body. A function that calls itself gets its own with each call.

// RUN: comm-opt %s --comm-realize-buffers="one-shot-threshold-bytes=0" -o %t.mlir
// RUN: comm-run %t.mlir --compare %s
// RUN: comm-run %t.mlir --compare %s --iterations 3
// RUN: comm-run %t.mlir --summary | sed 's/:.*, peak/: peak/' > %t.once
// RUN: comm-run %t.mlir --summary --iterations 5 | sed 's/:.*, peak/: peak/' > %t.often
// RUN: diff %t.once %t.often
// RUN: FileCheck %s --check-prefix=LEFT < %t.once
// RUN: comm-opt %t.mlir --comm-bufferize --comm-plan-buffers | FileCheck %s --check-prefix=PLAN
// RUN: comm-opt %t.mlir --comm-lower-to-runtime | FileCheck %s --check-prefix=CALLS

// LEFT: rank 0: peak {{[0-9]+}} bytes, 0 bytes left
// PLAN-DAG: memref.global "private" @comm_arena{{.*}} : memref<{{[0-9]+}}xi8, #comm.symmetric<@dp>> = uninitialized
// CALLS-LABEL: llvm.func @main
// CALLS: llvm.call @commrt_arena_find
// CALLS-LABEL: llvm.func @deeper
// CALLS-NOT: commrt_arena_find
// CALLS-LABEL: llvm.func @commrt_module_begin
// CALLS: llvm.call @commrt_program_begin_packed
// CALLS: llvm.call @commrt_arena_create
comm.group @dp #comm.iota<[1, 2]>

// PLAN-LABEL: func.func @main
// PLAN: memref.get_global @comm_arena{{.*}} #comm.symmetric<@dp>>
// PLAN-NOT: memref.alloc() {{.*}}#comm.symmetric
func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %z = arith.constant 0 : index
  %o = arith.constant 1 : index
  %t = arith.constant 3 : index
  %r = scf.for %i = %z to %t step %o iter_args(%a = %x) -> tensor<64xf32> {
    %grad = comm.compute "grad"(%a) : (tensor<64xf32>) -> tensor<64xf32>
    %f = comm.all_reduce sum %grad on @dp : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
    %sum = comm.wait %f : !comm.future<tensor<64xf32>>
    %new = comm.compute "update"(%x, %sum) : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    scf.yield %new : tensor<64xf32>
  }
  %d = func.call @deeper(%r, %t) : (tensor<64xf32>, index) -> tensor<64xf32>
  return %d : tensor<64xf32>
}

// PLAN-LABEL: func.func private @deeper
// PLAN: memref.alloc() {{.*}}#comm.symmetric<@dp>>
func.func private @deeper(%x: tensor<64xf32>, %n: index) -> tensor<64xf32> {
  %z = arith.constant 0 : index
  %o = arith.constant 1 : index
  %more = arith.cmpi sgt, %n, %z : index
  %less = arith.subi %n, %o : index
  %r = scf.if %more -> tensor<64xf32> {
    %q = func.call @deeper(%x, %less) : (tensor<64xf32>, index) -> tensor<64xf32>
    scf.yield %q : tensor<64xf32>
  } else {
    scf.yield %x : tensor<64xf32>
  }
  %grad = comm.compute "grad"(%r) : (tensor<64xf32>) -> tensor<64xf32>
  %f = comm.all_reduce sum %grad on @dp : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  %sum = comm.wait %f : !comm.future<tensor<64xf32>>
  %new = comm.compute "deep"(%sum) : (tensor<64xf32>) -> tensor<64xf32>
  return %new : tensor<64xf32>
}

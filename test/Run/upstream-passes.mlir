// Tests that upstream's passes change no bit of programs whose collectives have destinations: canonicalization folds a read of a
// destination, merges the destinations of two collectives, and drops collectives that move nothing.

// RUN: comm-opt %s --cse -o %t.cse.mlir
// RUN: FileCheck %s --check-prefix=CSE --input-file=%t.cse.mlir
// RUN: comm-opt %s --canonicalize -o %t.canonical.mlir
// RUN: FileCheck %s --check-prefix=CANONICAL --input-file=%t.canonical.mlir
// RUN: comm-opt %s --reorder-comm-overlap="passes=func.func(canonicalize),cse,comm-schedule" -o %t.scheduled.mlir
// RUN: comm-run %s --ranks 2 --compare %t.cse.mlir --compare %t.canonical.mlir --compare %t.scheduled.mlir

// Tests that passes in a pipeline are not given a program that they may break.
// RUN: not comm-opt %S/Inputs/written-fill.mlir --reorder-comm-overlap="passes=func.func(canonicalize),comm-schedule" -o /dev/null 2>&1 | FileCheck %s --check-prefix=REFUSED
// RUN: comm-opt %S/Inputs/written-fill.mlir --canonicalize -o %t.folded.mlir
// RUN: not comm-run %t.folded.mlir --ranks 2 2>&1 | FileCheck %s --check-prefix=REFUSED
// REFUSED: error: 'linalg.fill' op expected an operation with memory effects that makes a tensor whose storage is written

comm.group @w #comm.iota<[1, 2]>
comm.group @alone #comm.iota<[2, 1]>

// CSE: comm.all_reduce sum %{{.*}} into %[[DEST:[a-z0-9_]+]] on @w
// CSE: comm.all_reduce max %{{.*}} into %[[DEST]] on @w
// CANONICAL-NOT: tensor.extract
// CANONICAL: comm.broadcast {{.*}} into {{.*}} on @alone
// CANONICAL-NOT: comm.broadcast
func.func @main(%x: tensor<16xf32>, %y: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>, f32, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) {
  %c0 = arith.constant 0 : index
  %c = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<16xf32>
  %a = linalg.fill ins(%c : f32) outs(%e0 : tensor<16xf32>) -> tensor<16xf32>
  %e1 = tensor.empty() : tensor<16xf32>
  %b = linalg.fill ins(%c : f32) outs(%e1 : tensor<16xf32>) -> tensor<16xf32>
  %f = comm.all_reduce sum %x into %a on @w : (tensor<16xf32>) -> !comm.future<tensor<16xf32>>
  %v = comm.wait %f : !comm.future<tensor<16xf32>>
  %g = comm.all_reduce max %y into %b on @w : (tensor<16xf32>) -> !comm.future<tensor<16xf32>>
  %w = comm.wait %g : !comm.future<tensor<16xf32>>
  %u = tensor.extract %a[%c0] : tensor<16xf32>
  // Moves nothing, but somebody reads the destination under its old name.
  %place = comm.compute "make"(%x) : (tensor<16xf32>) -> tensor<16xf32>
  %h = comm.broadcast %x into %place on @alone root 0 : (tensor<16xf32>) -> !comm.future<tensor<16xf32>>
  %r = comm.wait %h : !comm.future<tensor<16xf32>>
  %read = comm.compute "read"(%place) : (tensor<16xf32>) -> tensor<16xf32>
  // Moves nothing, and nobody does.
  %other = comm.compute "make"(%y) : (tensor<16xf32>) -> tensor<16xf32>
  %i = comm.broadcast %y into %other on @alone root 0 : (tensor<16xf32>) -> !comm.future<tensor<16xf32>>
  %s = comm.wait %i : !comm.future<tensor<16xf32>>
  // Moves nothing, but what the loop returns is written.
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %n = comm.compute "make"(%x) : (tensor<16xf32>) -> tensor<16xf32>
  %m = comm.compute "make"(%y) : (tensor<16xf32>) -> tensor<16xf32>
  %t = scf.for %k = %c0 to %two step %one iter_args(%carried = %m) -> tensor<16xf32> {
    %j = comm.all_gather %n on @alone : (tensor<16xf32>) -> !comm.future<tensor<16xf32>>
    %z = comm.wait %j : !comm.future<tensor<16xf32>>
    scf.yield %z : tensor<16xf32>
  }
  comm.compute "update"(%t, %y) mutates [0] : (tensor<16xf32>, tensor<16xf32>) -> ()
  return %v, %w, %u, %read, %s, %t, %n : tensor<16xf32>, tensor<16xf32>, f32, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>
}

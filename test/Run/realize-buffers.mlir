// Tests that comm-realize-buffers and the buffers that it asks for change no bit: in place, in one shot, coalesced, written
// where it is copied to, uneven, with a wait that goes.

// RUN: comm-opt %s --comm-realize-buffers="one-shot-threshold-bytes=64" -o %t.mlir
// RUN: FileCheck %s --check-prefix=REALIZED --input-file=%t.mlir
// RUN: comm-opt %t.mlir --comm-bufferize | FileCheck %s --check-prefix=BUFFERS
// RUN: comm-opt %t.mlir --comm-lower-to-runtime | FileCheck %s --check-prefix=CALLS
// RUN: not comm-run %t.mlir --ranks 2 --fault mismatch@0 2>&1 | FileCheck %s --check-prefix=CARRIED-OUT
// RUN: comm-run %t.mlir --ranks 2 --compare %s
// RUN: comm-opt %s --comm-bufferize --comm-realize-buffers="one-shot-threshold-bytes=64" -o %t.buffers.mlir
// RUN: FileCheck %s --check-prefix=BUFFERS --input-file=%t.buffers.mlir
// RUN: comm-run %t.buffers.mlir --ranks 2 --compare %s
// RUN: sed -e 's/\[1, 2\]/[2, 2]/' %s > %t.four.mlir
// RUN: comm-opt %t.four.mlir --comm-realize-buffers -o %t.four.realized.mlir
// RUN: comm-run %t.four.realized.mlir --ranks 4 --compare %t.four.mlir

comm.group @dp #comm.iota<[1, 2]>

// REALIZED-DAG: comm.all_reduce sum {{.*}} on @dp one_shot {comm.symmetric = array<i1: true, true>}
// REALIZED-DAG: comm.all_reduce sum {{.*}} into {{.*}} on @dp {comm.symmetric = array<i1: true, true>}
// REALIZED-DAG: comm.all_reduce max {{.*}} into {{.*}} on @dp {comm.symmetric = array<i1: true, true, true, true>}
// REALIZED-DAG: comm.broadcast {{.*}} into {{.*}} on @dp root 1
// REALIZED-DAG: comm.all_gather {{.*}} into %{{.*}} on @dp
// REALIZED-DAG: comm.all_to_all {{.*}} input_splits [8, 8] output_splits [8, 8] {comm.symmetric = array<i1: true, true>}
// What the runtime is asked for, and what it says that it carries out: one sum in one shot, and symmetric memory.
// CALLS-DAG: llvm.call @commrt_all_reduce_one_shot_start(
// CALLS-DAG: llvm.call @commrt_arena_find(
// CALLS-DAG: llvm.call @commrt_arena_create(
// CARRIED-OUT: all_reduce of 8 x f32 on @dp by sum in one shot
// BUFFERS-COUNT-8: memref.alloc() {{.*}}#comm.symmetric<@dp>>
func.func @main(%x: tensor<8xf32>, %y: tensor<16x4xf32>, %p: tensor<32x4xf32>) -> (tensor<8xf32>, tensor<32x4xf32>) {
  %small = comm.compute "small"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %f0 = comm.all_reduce sum %small on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %large = comm.compute "large"(%y) : (tensor<16x4xf32>) -> tensor<16x4xf32>
  %f1 = comm.all_reduce sum %large on @dp : (tensor<16x4xf32>) -> !comm.future<tensor<16x4xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<8xf32>>
  %a = comm.compute "a"(%w0) : (tensor<8xf32>) -> tensor<8xf32>
  %b = comm.compute "b"(%w0) : (tensor<8xf32>) -> tensor<16x4xf32>
  %f2 = comm.all_reduce max %a, %b on @dp : (tensor<8xf32>, tensor<16x4xf32>) -> !comm.future<tensor<8xf32>, tensor<16x4xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<16x4xf32>>
  %again = comm.wait %f1 : !comm.future<tensor<16x4xf32>>
  %root = comm.compute "root"(%w1, %again) : (tensor<16x4xf32>, tensor<16x4xf32>) -> tensor<8xf32>
  %f3 = comm.broadcast %root on @dp root 1 : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %f4 = comm.all_gather %w1 on @dp : (tensor<16x4xf32>) -> !comm.future<tensor<32x4xf32>>
  %w2:2 = comm.wait %f2 : !comm.future<tensor<8xf32>, tensor<16x4xf32>>
  %send = comm.compute "send"(%w2#0, %w2#1) : (tensor<8xf32>, tensor<16x4xf32>) -> tensor<16x4xf32>
  %f5 = comm.all_to_all %send on @dp input_splits [8, 8] output_splits [8, 8] : (tensor<16x4xf32>) -> !comm.future<tensor<16x4xf32>>
  %w4 = comm.wait %f4 : !comm.future<tensor<32x4xf32>>
  comm.fsdp.copy %w4 into %p : tensor<32x4xf32> into tensor<32x4xf32>
  %w3 = comm.wait %f3 : !comm.future<tensor<8xf32>>
  %w5 = comm.wait %f5 : !comm.future<tensor<16x4xf32>>
  %r0 = comm.compute "r0"(%w3, %w5) : (tensor<8xf32>, tensor<16x4xf32>) -> tensor<8xf32>
  %r1 = comm.compute "r1"(%p, %r0) : (tensor<32x4xf32>, tensor<8xf32>) -> tensor<32x4xf32>
  return %r0, %r1 : tensor<8xf32>, tensor<32x4xf32>
}

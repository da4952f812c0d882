// RUN: comm-opt %s --split-input-file --comm-pipeline-loops=memory-budget-ratio=4 --remarks-filter=comm-pipeline-loops -o /dev/null 2>&1 | FileCheck %s
// RUN: comm-opt %s --split-input-file --comm-pipeline-loops=force | FileCheck %s --check-prefix=FORCE
// RUN: not comm-opt %s --split-input-file --comm-pipeline-loops=memory-limit-bytes=8 2>&1 | FileCheck %s --check-prefix=LIMIT
// RUN: not comm-opt %s --reorder-comm-overlap=loops=unroll 2>&1 | FileCheck %s --check-prefix=VALUE

// LIMIT: error: comm-pipeline-loops: the limit on memory is below the least peak that was found
// VALUE: loops

// Tests that a gather of what the iteration before computes, and a reduction that is read at once, stay where they are.
// CHECK: [Missed] loop {{.*}}not pipelined: each collective needs what the iteration before computes, and its result is read in the same iteration
// FORCE-LABEL: func.func @carried
// FORCE-NOT: comm.
// FORCE: scf.for
comm.group @dp #comm.iota<[1, 4]>
func.func @carried(%x: tensor<64xf32>) -> tensor<64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %result = scf.for %i = %c0 to %c4 step %c1 iter_args(%h = %x) -> (tensor<64xf32>) {
    %f = comm.all_gather %h on @dp : (tensor<64xf32>) -> !comm.future<tensor<256xf32>>
    %w = comm.wait %f : !comm.future<tensor<256xf32>>
    %g = comm.reduce_scatter sum %w on @dp : (tensor<256xf32>) -> !comm.future<tensor<64xf32>>
    %y = comm.wait %g : !comm.future<tensor<64xf32>>
    scf.yield %y : tensor<64xf32>
  }
  return %result : tensor<64xf32>
}

// -----

// Tests that a gather stays behind the write of its operand: the next iteration would read what this one has yet to
// write.
// CHECK: [Missed] loop {{.*}}not pipelined: what other iterations access does not let a collective move
// FORCE-LABEL: func.func @written
// FORCE-NOT: comm.
// FORCE: scf.for
comm.group @dp #comm.iota<[1, 4]>
func.func @written(%cache: memref<64xf32> {llvm.noalias}, %x: memref<64xf32> {llvm.noalias}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %buffer = memref.alloc() : memref<256xf32>
    %f = comm.all_gather %cache into %buffer on @dp : (memref<64xf32>) -> !comm.future<memref<256xf32>>
    %w = comm.wait %f : !comm.future<memref<256xf32>>
    %one = memref.load %w[%i] : memref<256xf32>
    memref.store %one, %cache[%i] : memref<64xf32>
    memref.dealloc %buffer : memref<256xf32>
  }
  return
}

// -----

// Tests that nothing moves in a loop with an operation whose effects nobody declares, or with a fixed place.
// CHECK: [Missed] loop {{.*}}not pipelined: nobody says which memory '{{.*}}keeps.mlir:{{[0-9:]+}}' touches
// CHECK: [Missed] loop {{.*}}not pipelined: '{{.*}}keeps.mlir:{{[0-9:]+}}' has a fixed place
comm.group @dp #comm.iota<[1, 4]>
func.func private @unknown(tensor<256xf32>)
func.func @effects(%params: tensor<4x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %shard = tensor.extract_slice %params[%i, 0] [1, 64] [1, 1] : tensor<4x64xf32> to tensor<64xf32>
    %f = comm.all_gather %shard on @dp : (tensor<64xf32>) -> !comm.future<tensor<256xf32>>
    %w = comm.wait %f : !comm.future<tensor<256xf32>>
    func.call @unknown(%w) : (tensor<256xf32>) -> ()
  }
  scf.for %i = %c0 to %c4 step %c1 {
    %shard = tensor.extract_slice %params[%i, 0] [1, 64] [1, 1] : tensor<4x64xf32> to tensor<64xf32>
    %f = comm.all_gather %shard on @dp : (tensor<64xf32>) -> !comm.future<tensor<256xf32>>
    %w = comm.wait %f : !comm.future<tensor<256xf32>>
    %b = comm.barrier on @dp : () -> !comm.future<>
    comm.wait %b : !comm.future<>
  }
  return
}

// -----

// Tests that loops of other dialects are named.
// CHECK: [Missed] loop {{.*}}Kind=affine.for{{.*}}not pipelined: only scf.for is pipelined; --lower-affine makes one of an affine.for
// CHECK: [Missed] loop {{.*}}Kind=scf.while{{.*}}not pipelined: only scf.for is pipelined"
comm.group @dp #comm.iota<[1, 4]>
func.func @others(%shard: tensor<64xf32>, %go: i1) {
  affine.for %i = 0 to 4 {
    %f = comm.all_gather %shard on @dp : (tensor<64xf32>) -> !comm.future<tensor<256xf32>>
    %w = comm.wait %f : !comm.future<tensor<256xf32>>
  }
  scf.while : () -> () {
    scf.condition(%go)
  } do {
    %f = comm.all_gather %shard on @dp : (tensor<64xf32>) -> !comm.future<tensor<256xf32>>
    %w = comm.wait %f : !comm.future<tensor<256xf32>>
    scf.yield
  }
  return
}

// RUN: comm-opt %s --comm-verify --split-input-file --verify-diagnostics | FileCheck %s

comm.group @dp #comm.iota<[1, 4]>

// Tests that a correct function passes and is stamped.
// CHECK: func.func @good{{.*}} attributes {comm.schedule_signature = "{{[0-9a-f]+}}"}
func.func @good(%x: tensor<4xf32>) -> tensor<16xf32> {
  %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w = comm.wait %f : !comm.future<tensor<16xf32>>
  return %w : tensor<16xf32>
}

// Tests that a future that leaves the function is waited for elsewhere.
func.func @escapes(%x: tensor<4xf32>) -> !comm.future<tensor<16xf32>> {
  %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  return %f : !comm.future<tensor<16xf32>>
}

// Tests that collectives under control flow that all ranks decide alike are fine.
func.func @uniform_branch(%x: tensor<4xf32>, %c: i1) {
  scf.if %c {
    %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
    %w = comm.wait %f : !comm.future<tensor<16xf32>>
  }
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>

func.func @never_waited(%x: tensor<4xf32>) {
  // expected-error @+1 {{expected a wait or a future that leaves the function, got neither}}
  %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>

func.func @unreachable_wait(%x: tensor<4xf32>) {
  // expected-error @+1 {{is waited for only in unreachable code}}
  %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  return
^dead:
  // expected-note @+1 {{this wait is unreachable}}
  %w = comm.wait %f : !comm.future<tensor<16xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>

func.func @written_in_flight(%x: memref<4xf32>, %y: memref<16xf32>, %v: f32, %i: index) {
  // expected-note @+1 {{the collective is started here and has no certain wait in between}}
  %f = comm.all_gather %x into %y on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  // expected-error @+1 {{writes operand #1, which is in flight}}
  memref.store %v, %x[%i] : memref<4xf32>
  %w = comm.wait %f keeping (%x, %y : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>

func.func @read_in_flight(%x: memref<4xf32>, %y: memref<16xf32>, %i: index) -> f32 {
  // expected-note @+1 {{the collective is started here and has no certain wait in between}}
  %f = comm.all_gather %x into %y on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  // Reading what is sent is fine, reading what is received is not.
  %ok = memref.load %x[%i] : memref<4xf32>
  // expected-error @+1 {{reads operand #0, which is in flight}}
  %v = memref.load %y[%i] : memref<16xf32>
  %w = comm.wait %f keeping (%x, %y : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
  %after = memref.load %y[%i] : memref<16xf32>
  return %v : f32
}

// -----

comm.group @dp #comm.iota<[1, 4]>

func.func @mutated_in_flight(%x: tensor<4xf32>) {
  // expected-note @+1 {{the collective is started here and has no certain wait in between}}
  %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  // expected-error @+1 {{writes operand #0, which is in flight}}
  comm.compute "add_"(%x) mutates [0] : (tensor<4xf32>) -> ()
  %w = comm.wait %f : !comm.future<tensor<16xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>

func.func @divergent(%x: tensor<4xf32>, %comm: !mpi.comm) {
  %rank = mpi.comm_rank(%comm) : i32
  %zero = arith.constant 0 : i32
  %first = arith.cmpi eq, %rank, %zero : i32
  // expected-note @+1 {{this operation branches on a value that depends on the rank}}
  scf.if %first {
    // expected-error @+1 {{expected control flow that is equal on all ranks, got a condition that depends on the rank}}
    %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
    %w = comm.wait %f : !comm.future<tensor<16xf32>>
  }
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that a wait on both sides of a branch counts behind it, and one on one side within it.
func.func @both_sides(%x: tensor<4xf32>, %c: i1) {
  %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  scf.if %c {
    %w = comm.wait %f : !comm.future<tensor<16xf32>>
    comm.compute "add_"(%x) mutates [0] : (tensor<4xf32>) -> ()
  } else {
    %w = comm.wait %f : !comm.future<tensor<16xf32>>
  }
  comm.compute "add_"(%x) mutates [0] : (tensor<4xf32>) -> ()
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that it does not count behind a branch that may take the other side.
func.func @one_side(%x: tensor<4xf32>, %c: i1) {
  // expected-note @+1 {{the collective is started here and has no certain wait in between}}
  %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  scf.if %c {
    %w = comm.wait %f : !comm.future<tensor<16xf32>>
    comm.compute "add_"(%x) mutates [0] : (tensor<4xf32>) -> ()
  }
  // expected-error @+1 {{writes operand #0, which is in flight}}
  comm.compute "add_"(%x) mutates [0] : (tensor<4xf32>) -> ()
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that views of one arena that lie apart are different buffers, and that others are not.
func.func @arena(%x: memref<4xf32>, %arena: memref<128xi8>, %v: f32, %i: index) {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
  %c80 = arith.constant 80 : index
  %inner = memref.view %arena[%c16][] : memref<128xi8> to memref<112xi8>
  %dest = memref.view %inner[%c0][] : memref<112xi8> to memref<16xf32>
  %made = memref.view %arena[%c0][] : memref<128xi8> to memref<4xf32>
  %r = comm.all_reduce sum %x into %made on @dp : (memref<4xf32>) -> !comm.future<memref<4xf32>>
  %before = comm.wait %r keeping (%x, %made : memref<4xf32>, memref<4xf32>) : !comm.future<memref<4xf32>>
  %behind = memref.view %arena[%c80][] : memref<128xi8> to memref<4xf32>
  %within = memref.view %inner[%c32][] : memref<112xi8> to memref<4xf32>
  // expected-note @+1 {{the collective is started here and has no certain wait in between}}
  %f = comm.all_gather %x into %dest on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  memref.store %v, %before[%i] : memref<4xf32>
  memref.store %v, %behind[%i] : memref<4xf32>
  // expected-error @+1 {{writes operand #1, which is in flight}}
  memref.store %v, %within[%i] : memref<4xf32>
  %w = comm.wait %f keeping (%x, %dest : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
  return
}

// -----

// Parts of one buffer that overlap are not apart, whatever their types say.
comm.group @dp #comm.iota<[1, 2]>
func.func @overlapping_parts(%in: memref<2xf32>, %whole: memref<4xf32>) {
  %top = memref.subview %whole[0] [2] [1] : memref<4xf32> to memref<2xf32, strided<[1]>>
  %middle = memref.subview %whole[1] [2] [1] : memref<4xf32> to memref<2xf32, strided<[1], offset: 1>>
  // expected-note @+1 {{the collective is started here and has no certain wait in between}}
  %f = comm.all_reduce sum %in into %top on @dp : (memref<2xf32>) -> !comm.future<memref<2xf32, strided<[1]>>>
  // expected-error @+1 {{writes operand #1, which is in flight}}
  %g = comm.all_reduce sum %in into %middle on @dp : (memref<2xf32>) -> !comm.future<memref<2xf32, strided<[1], offset: 1>>>
  %v = comm.wait %f keeping (%in, %top : memref<2xf32>, memref<2xf32, strided<[1]>>) : !comm.future<memref<2xf32, strided<[1]>>>
  %w = comm.wait %g keeping (%in, %middle : memref<2xf32>, memref<2xf32, strided<[1], offset: 1>>) : !comm.future<memref<2xf32, strided<[1], offset: 1>>>
  return
}

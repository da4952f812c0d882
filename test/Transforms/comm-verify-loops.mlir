// RUN: comm-opt %s --comm-verify --split-input-file --verify-diagnostics

comm.group @dp #comm.iota<[1, 4]>

// Tests that the values that a loop carries are different storage: one is in flight while another one is written.
func.func private @separate(%x: tensor<4xf32>, %y: tensor<4xf32>, %c: i1) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %a:2 = scf.for %i = %c0 to %c2 step %c1 iter_args(%p = %x, %q = %y) -> (tensor<4xf32>, tensor<4xf32>) {
    %f = comm.all_reduce sum %p on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
    comm.compute "update"(%q, %q) mutates [0] : (tensor<4xf32>, tensor<4xf32>) -> ()
    %w = comm.wait %f : !comm.future<tensor<4xf32>>
    scf.yield %w, %q : tensor<4xf32>, tensor<4xf32>
  }
  return
}

// Tests that results of collectives that are carried on are not what the loop was given otherwise.
func.func private @nested(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %a:2 = scf.for %i = %c0 to %c2 step %c1 iter_args(%p = %x, %q = %y) -> (tensor<4xf32>, tensor<4xf32>) {
    %b:2 = scf.for %j = %c0 to %c2 step %c1 iter_args(%r = %p, %s = %q) -> (tensor<4xf32>, tensor<4xf32>) {
      %f = comm.broadcast %s into %s on @dp root 1 : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
      comm.compute "update"(%r, %r) mutates [0] : (tensor<4xf32>, tensor<4xf32>) -> ()
      %w = comm.wait %f : !comm.future<tensor<4xf32>>
      scf.yield %r, %w : tensor<4xf32>, tensor<4xf32>
    }
    scf.yield %b#0, %b#1 : tensor<4xf32>, tensor<4xf32>
  }
  return
}

// Tests that pieces of one buffer are apart.
func.func @pieces(%x: tensor<48xf32>) {
  %p:2 = comm.fsdp.split_with_sizes %x sizes [24, 24] : (tensor<48xf32>) -> (tensor<6x4xf32>, tensor<24xf32>)
  %f = comm.broadcast %p#1 on @dp root 0 : (tensor<24xf32>) -> !comm.future<tensor<24xf32>>
  comm.compute "update"(%p#0, %p#0) mutates [0] : (tensor<6x4xf32>, tensor<6x4xf32>) -> ()
  %w = comm.wait %f : !comm.future<tensor<24xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that a piece and the whole are not apart.
func.func @piece_and_whole(%x: tensor<48xf32>) {
  %p:2 = comm.fsdp.split_with_sizes %x sizes [24, 24] : (tensor<48xf32>) -> (tensor<24xf32>, tensor<24xf32>)
  // expected-note @+1 {{the collective is started here and has no certain wait in between}}
  %f = comm.broadcast %p#1 on @dp root 0 : (tensor<24xf32>) -> !comm.future<tensor<24xf32>>
  // expected-error @+1 {{writes operand #0, which is in flight}}
  comm.compute "update"(%x, %x) mutates [0] : (tensor<48xf32>, tensor<48xf32>) -> ()
  %w = comm.wait %f : !comm.future<tensor<24xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that a loop that exchanges its values has each of them in both places.
func.func @exchanged(%x: memref<4xf32>, %y: memref<4xf32>, %z: memref<4xf32>, %out: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  // expected-note @+1 {{the collective is started here and has no certain wait in between}}
  %f = comm.all_reduce sum %y into %out on @dp : (memref<4xf32>) -> !comm.future<memref<4xf32>>
  %a:3 = scf.for %i = %c0 to %c2 step %c1 iter_args(%p = %x, %q = %y, %r = %z) -> (memref<4xf32>, memref<4xf32>, memref<4xf32>) {
    comm.compute "update"(%r, %r) mutates [0] : (memref<4xf32>, memref<4xf32>) -> ()
    // expected-error @+1 {{writes operand #0, which is in flight}}
    comm.compute "update"(%p, %p) mutates [0] : (memref<4xf32>, memref<4xf32>) -> ()
    scf.yield %q, %p, %r : memref<4xf32>, memref<4xf32>, memref<4xf32>
  }
  %w = comm.wait %f : !comm.future<memref<4xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that a value from outside that a loop yields is what it carries on, through a view.
func.func @yielded_from_outside(%x: memref<4xf32>, %y: memref<4xf32>, %out: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  // expected-note @+1 {{the collective is started here and has no certain wait in between}}
  %f = comm.all_reduce sum %y into %out on @dp : (memref<4xf32>) -> !comm.future<memref<4xf32>>
  %a = scf.for %i = %c0 to %c2 step %c1 iter_args(%p = %x) -> memref<4xf32> {
    // expected-error @+1 {{writes operand #0, which is in flight}}
    comm.compute "update"(%p, %p) mutates [0] : (memref<4xf32>, memref<4xf32>) -> ()
    %v = comm.compute "view"(%y) aliases [0] : (memref<4xf32>) -> memref<4xf32>
    scf.yield %v : memref<4xf32>
  }
  %w = comm.wait %f : !comm.future<memref<4xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that a loop that carries a future carries what is in flight with it, until a wait for the carried future.
func.func @carried_future(%x: memref<4xf32>, %y: memref<4xf32>, %out: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %f = comm.all_reduce sum %x into %out on @dp : (memref<4xf32>) -> !comm.future<memref<4xf32>>
  %a:2 = scf.for %i = %c0 to %c2 step %c1 iter_args(%g = %f, %p = %y) -> (!comm.future<memref<4xf32>>, memref<4xf32>) {
    // expected-error @+1 {{writes operand #0, which is in flight}}
    comm.compute "update"(%p, %p) mutates [0] : (memref<4xf32>, memref<4xf32>) -> ()
    %w = comm.wait %g : !comm.future<memref<4xf32>>
    // expected-note @+1 {{the collective is started here, in another block or iteration, and has no certain wait in between}}
    %h = comm.all_reduce sum %p into %out on @dp : (memref<4xf32>) -> !comm.future<memref<4xf32>>
    scf.yield %h, %p : !comm.future<memref<4xf32>>, memref<4xf32>
  }
  %v = comm.wait %a#0 : !comm.future<memref<4xf32>>
  return
}

// Tests that the first iteration has waited for what was in flight in front of the loop.
func.func @carried_with_another(%x: memref<4xf32>, %y: memref<4xf32>, %out: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %f = comm.all_reduce sum %x into %out on @dp : (memref<4xf32>) -> !comm.future<memref<4xf32>>
  %a:2 = scf.for %i = %c0 to %c2 step %c1 iter_args(%g = %f, %p = %y) -> (!comm.future<memref<4xf32>>, memref<4xf32>) {
    comm.compute "update"(%p, %p) mutates [0] : (memref<4xf32>, memref<4xf32>) -> ()
    %w = comm.wait %g : !comm.future<memref<4xf32>>
    %h = comm.all_reduce sum %p into %out on @dp : (memref<4xf32>) -> !comm.future<memref<4xf32>>
    scf.yield %h, %x : !comm.future<memref<4xf32>>, memref<4xf32>
  }
  %v = comm.wait %a#0 : !comm.future<memref<4xf32>>
  return
}

func.func @carried_and_completed(%x: memref<4xf32>, %y: memref<4xf32>, %out: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %f = comm.all_reduce sum %x into %out on @dp : (memref<4xf32>) -> !comm.future<memref<4xf32>>
  %a:2 = scf.for %i = %c0 to %c2 step %c1 iter_args(%g = %f, %p = %y) -> (!comm.future<memref<4xf32>>, memref<4xf32>) {
    %w = comm.wait %g : !comm.future<memref<4xf32>>
    comm.compute "update"(%p, %p) mutates [0] : (memref<4xf32>, memref<4xf32>) -> ()
    %h = comm.all_reduce sum %p into %out on @dp : (memref<4xf32>) -> !comm.future<memref<4xf32>>
    scf.yield %h, %x : !comm.future<memref<4xf32>>, memref<4xf32>
  }
  %v = comm.wait %a#0 : !comm.future<memref<4xf32>>
  return
}

memref.global "private" @global : memref<4xf32> = uninitialized

// Tests that a global that is asked for twice is one buffer.
func.func @global_in_flight(%in: memref<4xf32>, %i: index) -> f32 {
  %one = memref.get_global @global : memref<4xf32>
  %two = memref.get_global @global : memref<4xf32>
  // expected-note @below {{the collective is started here and has no certain wait in between}}
  %f = comm.all_reduce sum %in into %one on @dp : (memref<4xf32>) -> !comm.future<memref<4xf32>>
  // expected-error @below {{reads operand #0, which is in flight}}
  %x = memref.load %two[%i] : memref<4xf32>
  %w = comm.wait %f keeping (%in, %one : memref<4xf32>, memref<4xf32>) : !comm.future<memref<4xf32>>
  return %x : f32
}

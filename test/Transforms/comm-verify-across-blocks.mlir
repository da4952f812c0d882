// Tests memory in flight in other blocks than that of the start: in the next iteration, behind a loop or a branch, and in other
// basic blocks.

// RUN: comm-opt %s --split-input-file --comm-verify --verify-diagnostics -o /dev/null

// Tests what the iteration before has in flight. The first iteration has another buffer in flight.
comm.group @dp #comm.iota<[1, 4]>
func.func @next_iteration(%x: memref<4xf32>, %a: memref<16xf32>, %b: memref<16xf32>, %n: index, %one: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %first = comm.all_gather %x into %b on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  %last = scf.for %i = %c0 to %n step %c1 iter_args(%f = %first) -> (!comm.future<memref<16xf32>>) {
    // expected-error @+1 {{writes operand #1, which is in flight}}
    memref.store %one, %a[%c0] : memref<16xf32>
    %w = comm.wait %f : !comm.future<memref<16xf32>>
    // expected-note @+1 {{started here, in another block or iteration}}
    %g = comm.all_gather %x into %a on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
    scf.yield %g : !comm.future<memref<16xf32>>
  }
  // expected-error @+1 {{reads operand #0, which is in flight}}
  %early = memref.load %a[%c0] : memref<16xf32>
  %e = comm.wait %last : !comm.future<memref<16xf32>>
  %late = memref.load %a[%c0] : memref<16xf32>
  return
}

// -----

// Tests two buffers that change places: what is written is not what the iteration before has in flight.
comm.group @dp #comm.iota<[1, 4]>
func.func @two_buffers(%x: memref<4xf32>, %n: index, %one: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = memref.alloc() : memref<16xf32>
  %b = memref.alloc() : memref<16xf32>
  %first = comm.all_gather %x into %b on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  %last:3 = scf.for %i = %c0 to %n step %c1 iter_args(%p = %a, %q = %b, %f = %first) -> (memref<16xf32>, memref<16xf32>, !comm.future<memref<16xf32>>) {
    memref.store %one, %p[%c0] : memref<16xf32>
    %w = comm.wait %f : !comm.future<memref<16xf32>>
    %g = comm.all_gather %x into %p on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
    scf.yield %q, %p, %g : memref<16xf32>, memref<16xf32>, !comm.future<memref<16xf32>>
  }
  %e = comm.wait %last#2 : !comm.future<memref<16xf32>>
  return
}

// -----

// Tests that the other one is found under the name that it has in the next iteration.
comm.group @dp #comm.iota<[1, 4]>
func.func @renamed(%x: memref<4xf32>, %n: index, %one: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = memref.alloc() : memref<16xf32>
  %b = memref.alloc() : memref<16xf32>
  %c = memref.alloc() : memref<16xf32>
  %first = comm.all_gather %x into %c on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  %last:3 = scf.for %i = %c0 to %n step %c1 iter_args(%p = %a, %q = %b, %f = %first) -> (memref<16xf32>, memref<16xf32>, !comm.future<memref<16xf32>>) {
    // expected-error @+1 {{writes operand #1, which is in flight}}
    memref.store %one, %q[%c0] : memref<16xf32>
    %w = comm.wait %f : !comm.future<memref<16xf32>>
    // expected-note @+1 {{started here, in another block or iteration}}
    %g = comm.all_gather %x into %p on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
    scf.yield %q, %p, %g : memref<16xf32>, memref<16xf32>, !comm.future<memref<16xf32>>
  }
  %e = comm.wait %last#2 : !comm.future<memref<16xf32>>
  return
}

// -----

// Tests a buffer that each iteration makes anew, and parts of one arena by their bytes.
comm.group @dp #comm.iota<[1, 4]>
func.func @new_buffer(%x: memref<4xf32>, %n: index, %one: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %arena = memref.alloc() : memref<128xi8>
  %a = memref.alloc() : memref<16xf32>
  %first = comm.all_gather %x into %a on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  %last = scf.for %i = %c0 to %n step %c1 iter_args(%f = %first) -> (!comm.future<memref<16xf32>>) {
    %other = memref.view %arena[%c0][] : memref<128xi8> to memref<16xf32>
    memref.store %one, %other[%c0] : memref<16xf32>
    %same = memref.view %arena[%c64][] : memref<128xi8> to memref<16xf32>
    // expected-error @+1 {{writes operand #1, which is in flight}}
    memref.store %one, %same[%c0] : memref<16xf32>
    %fresh = memref.alloc() : memref<4xf32>
    memref.store %one, %fresh[%c0] : memref<4xf32>
    %w = comm.wait %f : !comm.future<memref<16xf32>>
    %part = memref.view %arena[%c64][] : memref<128xi8> to memref<16xf32>
    // expected-note @+1 {{started here, in another block or iteration}}
    %g = comm.all_gather %fresh into %part on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
    scf.yield %g : !comm.future<memref<16xf32>>
  }
  %e = comm.wait %last : !comm.future<memref<16xf32>>
  return
}

// -----

// Tests basic blocks: a loop that reads what the collective of the iteration before fills, and a block behind a branch of which
// one side waits. There, on the other side, a wait is missing.
comm.group @dp #comm.iota<[1, 4]>
func.func @basic_blocks(%x: memref<4xf32>, %a: memref<16xf32>, %b: memref<16xf32>, %more: i1, %i: index) -> f32 {
  %first = comm.all_gather %x into %b on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  cf.br ^head(%first : !comm.future<memref<16xf32>>)
^head(%f: !comm.future<memref<16xf32>>):
  // expected-error @+1 {{reads operand #0, which is in flight}}
  %early = memref.load %a[%i] : memref<16xf32>
  %w = comm.wait %f : !comm.future<memref<16xf32>>
  // expected-note @+1 {{started here, in another block or iteration}}
  %g = comm.all_gather %x into %a on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  cf.cond_br %more, ^head(%g : !comm.future<memref<16xf32>>), ^done
^done:
  cf.cond_br %more, ^wait, ^end
^wait:
  %v = comm.wait %g : !comm.future<memref<16xf32>>
  %late = memref.load %a[%i] : memref<16xf32>
  cf.br ^end
^end:
  // The input may be read, and what one path has waited for is in flight on the other one.
  %input = memref.load %x[%i] : memref<4xf32>
  // expected-error @+1 {{reads operand #0, which is in flight}}
  %r = memref.load %a[%i] : memref<16xf32>
  %z = comm.wait %g : !comm.future<memref<16xf32>>
  return %r : f32
}

// -----

// Tests a future that leaves a branch, and a wait in another branch, which not every path comes to.
comm.group @dp #comm.iota<[1, 4]>
func.func @branches(%x: memref<4xf32>, %a: memref<16xf32>, %b: memref<16xf32>, %c: i1, %i: index) -> (f32, f32) {
  %f = scf.if %c -> (!comm.future<memref<16xf32>>) {
    // expected-note @+1 {{started here, in another block or iteration}}
    %l = comm.all_gather %x into %a on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
    scf.yield %l : !comm.future<memref<16xf32>>
  } else {
    // expected-note @+1 {{started here, in another block or iteration}}
    %r = comm.all_gather %x into %b on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
    scf.yield %r : !comm.future<memref<16xf32>>
  }
  // expected-error @+1 {{reads operand #0, which is in flight}}
  %early = memref.load %a[%i] : memref<16xf32>
  scf.if %c {
    %w = comm.wait %f : !comm.future<memref<16xf32>>
  }
  // expected-error @+1 {{reads operand #0, which is in flight}}
  %unknown = memref.load %b[%i] : memref<16xf32>
  %w = comm.wait %f : !comm.future<memref<16xf32>>
  return %early, %unknown : f32, f32
}

// -----

// Tests that an error in one function hides none in the next one, and what the edges of a switch and a loop with its condition
// in front pass on.
comm.group @dp #comm.iota<[1, 4]>
func.func @within_block(%x: memref<4xf32>, %a: memref<16xf32>, %i: index) -> f32 {
  // expected-note @+1 {{the collective is started here and has no certain wait in between}}
  %f = comm.all_gather %x into %a on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  // expected-error @+1 {{reads operand #0, which is in flight}}
  %v = memref.load %a[%i] : memref<16xf32>
  %w = comm.wait %f : !comm.future<memref<16xf32>>
  return %v : f32
}

func.func @switch(%x: memref<4xf32>, %a: memref<16xf32>, %b: memref<16xf32>, %c: i32, %i: index) -> f32 {
  // expected-note @+1 {{started here, in another block or iteration}}
  %f = comm.all_gather %x into %a on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  cf.switch %c : i32, [default: ^one(%b : memref<16xf32>), 7: ^one(%a : memref<16xf32>)]
^one(%m: memref<16xf32>):
  // expected-error @+1 {{reads operand #0, which is in flight}}
  %v = memref.load %m[%i] : memref<16xf32>
  %w = comm.wait %f : !comm.future<memref<16xf32>>
  return %v : f32
}

func.func @while(%x: memref<?xf32>, %a: memref<?xf32>, %n: index, %one: f32) {
  %c0 = arith.constant 0 : index
  // expected-note @+1 {{started here, in another block or iteration}}
  %first = comm.all_reduce sum %x into %a on @dp : (memref<?xf32>) -> !comm.future<memref<?xf32>>
  %last = scf.while (%f = %first) : (!comm.future<memref<?xf32>>) -> !comm.future<memref<?xf32>> {
    %c = arith.cmpi slt, %c0, %n : index
    scf.condition(%c) %f : !comm.future<memref<?xf32>>
  } do {
  ^bb0(%g: !comm.future<memref<?xf32>>):
    // expected-error @+1 {{writes operand #1, which is in flight}}
    memref.store %one, %a[%c0] : memref<?xf32>
    %w = comm.wait %g : !comm.future<memref<?xf32>>
    memref.store %one, %a[%c0] : memref<?xf32>
    %h = comm.all_reduce sum %x into %a on @dp : (memref<?xf32>) -> !comm.future<memref<?xf32>>
    scf.yield %h : !comm.future<memref<?xf32>>
  }
  %e = comm.wait %last : !comm.future<memref<?xf32>>
  return
}

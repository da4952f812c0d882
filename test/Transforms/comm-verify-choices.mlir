// RUN: comm-opt %s --split-input-file --verify-diagnostics --comm-verify

comm.group @dp #comm.iota<[1, 4]>

// Tests that what a branch yields behind the wait is complete, although the other side leaves the collective in flight.
func.func @yielded_behind_wait(%x: memref<4xf32>, %other: memref<16xf32>, %c: i1, %i: index) -> f32 {
  %dest = memref.alloc() : memref<16xf32>
  %f = comm.all_gather %x into %dest on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  %r = scf.if %c -> (memref<16xf32>) {
    %w = comm.wait %f keeping (%x, %dest : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
    scf.yield %w : memref<16xf32>
  } else {
    scf.yield %other : memref<16xf32>
  }
  %v = memref.load %r[%i] : memref<16xf32>
  return %v : f32
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that a side that yields the destination in front of the wait, or without one, is in flight.
func.func @yielded_without_wait(%x: memref<4xf32>, %other: memref<16xf32>, %c: i1, %i: index) -> f32 {
  %dest = memref.alloc() : memref<16xf32>
  // expected-note @+1 {{the collective is started here and has no certain wait in between}}
  %f = comm.all_gather %x into %dest on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  %r = scf.if %c -> (memref<16xf32>) {
    %w = comm.wait %f keeping (%x, %dest : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
    scf.yield %other : memref<16xf32>
  } else {
    scf.yield %dest : memref<16xf32>
  }
  // expected-error @+1 {{reads operand #0, which is in flight}}
  %v = memref.load %r[%i] : memref<16xf32>
  return %v : f32
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that a wait that may not run completes nothing for what its branch yields.
func.func @conditional_wait_within(%x: memref<4xf32>, %other: memref<16xf32>, %c: i1, %d: i1, %i: index) -> f32 {
  %dest = memref.alloc() : memref<16xf32>
  // expected-note @+1 {{the collective is started here and has no certain wait in between}}
  %f = comm.all_gather %x into %dest on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  %r = scf.if %c -> (memref<16xf32>) {
    scf.if %d {
      %w = comm.wait %f keeping (%x, %dest : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
    }
    scf.yield %dest : memref<16xf32>
  } else {
    scf.yield %other : memref<16xf32>
  }
  // expected-error @+1 {{reads operand #0, which is in flight}}
  %v = memref.load %r[%i] : memref<16xf32>
  return %v : f32
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that a choice among memory that lies apart from what is in flight may be written, through a loop,
// too. A choice that may be the destination may not.
func.func @apart(%x: memref<4xf32>, %other: memref<4x4xf32>, %c: i1, %v: f32, %i: index, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %arena = memref.alloc() : memref<128xi8>
  %dest = memref.view %arena[%c0][] : memref<128xi8> to memref<16xf32>
  %behind = memref.view %arena[%c64][] : memref<128xi8> to memref<4x4xf32>
  // expected-note @+1 {{the collective is started here and has no certain wait in between}}
  %f = comm.all_gather %x into %dest on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  %chosen = arith.select %c, %behind, %other : memref<4x4xf32>
  memref.store %v, %chosen[%i, %i] : memref<4x4xf32>
  %loop:2 = scf.for %k = %c0 to %n step %c1 iter_args(%a = %chosen, %b = %behind) -> (memref<4x4xf32>, memref<4x4xf32>) {
    memref.store %v, %a[%i, %i] : memref<4x4xf32>
    scf.yield %b, %a : memref<4x4xf32>, memref<4x4xf32>
  }
  memref.store %v, %loop#1[%i, %i] : memref<4x4xf32>
  %flat = memref.collapse_shape %behind [[0, 1]] : memref<4x4xf32> into memref<16xf32>
  %either = arith.select %c, %flat, %dest : memref<16xf32>
  // expected-error @+1 {{writes operand #1, which is in flight}}
  memref.store %v, %either[%i] : memref<16xf32>
  %w = comm.wait %f keeping (%x, %dest : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that a loop that carries the destination from one iteration to the next hands on memory in flight.
func.func @carried(%x: memref<4xf32>, %other: memref<16xf32>, %v: f32, %i: index, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %dest = memref.alloc() : memref<16xf32>
  // expected-note @+1 {{the collective is started here and has no certain wait in between}}
  %f = comm.all_gather %x into %dest on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  %loop:2 = scf.for %k = %c0 to %n step %c1 iter_args(%a = %other, %b = %dest) -> (memref<16xf32>, memref<16xf32>) {
    // expected-error @+1 {{writes operand #1, which is in flight}}
    memref.store %v, %a[%i] : memref<16xf32>
    scf.yield %b, %a : memref<16xf32>, memref<16xf32>
  }
  %w = comm.wait %f keeping (%x, %dest : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that what a branch yields behind the wait for a future that a loop returns is complete: the future may be any
// that the loop has carried, and the first one is in flight for the loop alone.
func.func @yielded_behind_wait_for_loop(%x: memref<4xf32>, %other: memref<16xf32>, %c: i1, %n: index, %i: index) -> f32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %dest = memref.alloc() : memref<16xf32>
  %f = comm.all_gather %x into %dest on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  %last = scf.for %k = %c0 to %n step %c1 iter_args(%g = %f) -> (!comm.future<memref<16xf32>>) {
    %v = comm.wait %g : !comm.future<memref<16xf32>>
    %next = memref.alloc() : memref<16xf32>
    %h = comm.all_gather %x into %next on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
    scf.yield %h : !comm.future<memref<16xf32>>
  }
  %r = scf.if %c -> (memref<16xf32>) {
    %w = comm.wait %last : !comm.future<memref<16xf32>>
    scf.yield %w : memref<16xf32>
  } else {
    scf.yield %other : memref<16xf32>
  }
  %v = memref.load %r[%i] : memref<16xf32>
  return %v : f32
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that the wait for a loop's future in one branch completes nothing for what the other branch yields.
func.func @yielded_without_wait_for_loop(%x: memref<4xf32>, %c: i1, %n: index, %i: index) -> f32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %dest = memref.alloc() : memref<16xf32>
  // expected-note @+1 {{the collective is started here and has no certain wait in between}}
  %f = comm.all_gather %x into %dest on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  %last = scf.for %k = %c0 to %n step %c1 iter_args(%g = %f) -> (!comm.future<memref<16xf32>>) {
    scf.yield %g : !comm.future<memref<16xf32>>
  }
  %r = scf.if %c -> (memref<16xf32>) {
    %w = comm.wait %last : !comm.future<memref<16xf32>>
    scf.yield %w : memref<16xf32>
  } else {
    scf.yield %dest : memref<16xf32>
  }
  // expected-error @+1 {{reads operand #0, which is in flight}}
  %v = memref.load %r[%i] : memref<16xf32>
  return %v : f32
}

// -----

comm.group @dp #comm.iota<[1, 4]>

func.func private @choose(%a: memref<16xf32>, %b: memref<16xf32>) -> memref<16xf32>

// Tests that a collective into the result of a branch has that memory in flight which the branch may yield, and no other
// that its regions use.
func.func @destination_is_chosen(%x: memref<4xf32>, %a: memref<16xf32>, %b: memref<16xf32>, %other: memref<16xf32>, %c: i1, %v: f32, %i: index) {
  %r = scf.if %c -> (memref<16xf32>) {
    %unused = func.call @choose(%a, %other) : (memref<16xf32>, memref<16xf32>) -> memref<16xf32>
    scf.yield %a : memref<16xf32>
  } else {
    scf.yield %b : memref<16xf32>
  }
  // expected-note @+1 {{the collective is started here and has no certain wait in between}}
  %f = comm.all_gather %x into %r on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  memref.store %v, %other[%i] : memref<16xf32>
  // expected-error @+1 {{writes operand #1, which is in flight}}
  memref.store %v, %b[%i] : memref<16xf32>
  %w = comm.wait %f keeping (%x, %r : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that a buffer that a branch allocates and yields is in flight, too.
func.func @destination_is_allocated_in_a_branch(%x: memref<4xf32>, %c: i1, %v: f32, %i: index) {
  %r = scf.if %c -> (memref<16xf32>) {
    %a = memref.alloc() : memref<16xf32>
    scf.yield %a : memref<16xf32>
  } else {
    %b = memref.alloc() : memref<16xf32>
    scf.yield %b : memref<16xf32>
  }
  // expected-note @+1 {{the collective is started here and has no certain wait in between}}
  %f = comm.all_gather %x into %r on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  // expected-error @+1 {{writes operand #1, which is in flight}}
  memref.store %v, %r[%i] : memref<16xf32>
  %w = comm.wait %f keeping (%x, %r : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that what was chosen in front of a region counts in the region: the choice comes before the collective.
func.func @chosen_outside(%x: memref<4xf32>, %other: memref<16xf32>, %c: i1, %v: f32, %i: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %arena = memref.alloc() : memref<128xi8>
  %dest = memref.view %arena[%c0][] : memref<128xi8> to memref<16xf32>
  %behind = memref.view %arena[%c64][] : memref<128xi8> to memref<16xf32>
  %apart = arith.select %c, %behind, %other : memref<16xf32>
  %either = arith.select %c, %apart, %dest : memref<16xf32>
  scf.if %c {
    // expected-note @+1 {{the collective is started here and has no certain wait in between}}
    %f = comm.all_gather %x into %dest on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
    memref.store %v, %apart[%i] : memref<16xf32>
    // expected-error @+1 {{writes operand #1, which is in flight}}
    memref.store %v, %either[%i] : memref<16xf32>
    %w = comm.wait %f keeping (%x, %dest : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
  }
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that what a branch in front of the block returns is one of its choices, and nothing beside them.
func.func @branch_outside(%x: memref<4xf32>, %c: i1, %v: f32, %i: index) {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %arena = memref.alloc() : memref<128xi8>
  %first = memref.view %arena[%c0][] : memref<128xi8> to memref<16xf32>
  %behind = memref.view %arena[%c64][] : memref<128xi8> to memref<16xf32>
  %dest = scf.if %c -> (memref<16xf32>) {
    scf.yield %first : memref<16xf32>
  } else {
    scf.yield %first : memref<16xf32>
  }
  scf.if %c {
    // expected-note @+1 {{the collective is started here and has no certain wait in between}}
    %f = comm.all_gather %x into %dest on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
    memref.store %v, %behind[%i] : memref<16xf32>
    // expected-error @+1 {{writes operand #1, which is in flight}}
    memref.store %v, %first[%i] : memref<16xf32>
    %w = comm.wait %f keeping (%x, %dest : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
  }
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that two allocations are apart, although one future from outside carries both.
func.func @two_allocations(%x: memref<4xf32>, %c: i1, %i: index) {
  %first = memref.alloc() : memref<16xf32>
  %second = memref.alloc() : memref<16xf32>
  %f = comm.all_gather %x, %x into %first, %second on @dp : (memref<4xf32>, memref<4xf32>) -> !comm.future<memref<16xf32>, memref<16xf32>>
  scf.if %c {
    %w:2 = comm.wait %f keeping (%x, %first, %second : memref<4xf32>, memref<16xf32>, memref<16xf32>) : !comm.future<memref<16xf32>, memref<16xf32>>
    // expected-note @+1 {{the collective is started here and has no certain wait in between}}
    %g = comm.all_gather %x into %first on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
    %a = memref.load %w#1[%i] : memref<16xf32>
    // expected-error @+1 {{reads operand #0, which is in flight}}
    %b = memref.load %w#0[%i] : memref<16xf32>
    %u = comm.wait %g keeping (%x, %first : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
  }
  %v:2 = comm.wait %f keeping (%x, %first, %second : memref<4xf32>, memref<16xf32>, memref<16xf32>) : !comm.future<memref<16xf32>, memref<16xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>

func.func private @passes(%x: memref<4xf32>, %y: memref<4xf32>) -> memref<4xf32>

// Tests that the message names the call whose result may be what is in flight.
func.func @returned(%x: memref<4xf32>, %y: memref<4xf32>, %v: f32, %i: index) {
  %copy = memref.alloc() : memref<4xf32>
  %dest = memref.alloc() : memref<16xf32>
  // expected-note @+1 {{what this call returns may be whatever it is given; wait before the access, or inline the call}}
  %r = func.call @passes(%copy, %y) : (memref<4xf32>, memref<4xf32>) -> memref<4xf32>
  // expected-note @+1 {{the collective is started here and has no certain wait in between}}
  %f = comm.all_gather %copy into %dest on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  // expected-error @+1 {{writes operand #1, which is in flight}}
  memref.store %v, %r[%i] : memref<4xf32>
  %w = comm.wait %f keeping (%copy, %dest : memref<4xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that what a basic block passes on behind the wait is complete. What leaves the loop may be of either collective.
func.func @passed_behind_wait(%x: memref<16xf32>, %other: memref<16xf32>, %c: i1, %i: index, %n: index) -> f32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %dest = memref.alloc() : memref<16xf32>
  %first = comm.all_reduce sum %x into %dest on @dp : (memref<16xf32>) -> !comm.future<memref<16xf32>>
  %f = scf.for %k = %c0 to %n step %c1 iter_args(%g = %first) -> (!comm.future<memref<16xf32>>) {
    %w = comm.wait %g : !comm.future<memref<16xf32>>
    %more = memref.alloc() : memref<16xf32>
    %next = comm.all_reduce sum %w into %more on @dp : (memref<16xf32>) -> !comm.future<memref<16xf32>>
    scf.yield %next : !comm.future<memref<16xf32>>
  }
  %v = scf.execute_region -> f32 {
    cf.cond_br %c, ^join(%other : memref<16xf32>), ^side
  ^side:
    %w = comm.wait %f : !comm.future<memref<16xf32>>
    cf.br ^join(%w : memref<16xf32>)
  ^join(%r: memref<16xf32>):
    %e = memref.load %r[%i] : memref<16xf32>
    scf.yield %e : f32
  }
  %last = comm.wait %f : !comm.future<memref<16xf32>>
  return %v : f32
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that what another edge passes on in front of the wait is in flight.
func.func @passed_without_wait(%x: memref<16xf32>, %c: i1, %i: index) -> f32 {
  %dest = memref.alloc() : memref<16xf32>
  // expected-note @+1 {{the collective is started here and has no certain wait in between}}
  %f = comm.all_reduce sum %x into %dest on @dp : (memref<16xf32>) -> !comm.future<memref<16xf32>>
  %v = scf.execute_region -> f32 {
    cf.cond_br %c, ^join(%dest : memref<16xf32>), ^side
  ^side:
    %w = comm.wait %f keeping (%x, %dest : memref<16xf32>, memref<16xf32>) : !comm.future<memref<16xf32>>
    cf.br ^join(%w : memref<16xf32>)
  ^join(%r: memref<16xf32>):
    // expected-error @+1 {{reads operand #0, which is in flight}}
    %e = memref.load %r[%i] : memref<16xf32>
    scf.yield %e : f32
  }
  return %v : f32
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that a wait in a loop of basic blocks completes nothing for later iterations: it may be for what an earlier one
// has started.
func.func @passed_in_a_cycle(%x: memref<16xf32>, %other: memref<16xf32>, %c: i1, %i: index) -> f32 {
  %dest = memref.alloc() : memref<16xf32>
  // expected-note @+1 {{the collective is started here and has no certain wait in between}}
  %first = comm.all_reduce sum %x into %dest on @dp : (memref<16xf32>) -> !comm.future<memref<16xf32>>
  %v = scf.execute_region -> f32 {
    %zero = arith.constant 0.0 : f32
    cf.br ^loop(%first, %other : !comm.future<memref<16xf32>>, memref<16xf32>)
  ^loop(%g: !comm.future<memref<16xf32>>, %r: memref<16xf32>):
    // expected-error @+1 {{reads operand #0, which is in flight}}
    %e = memref.load %r[%i] : memref<16xf32>
    %w = comm.wait %g : !comm.future<memref<16xf32>>
    %next = comm.all_reduce sum %x into %dest on @dp : (memref<16xf32>) -> !comm.future<memref<16xf32>>
    cf.cond_br %c, ^loop(%next, %w : !comm.future<memref<16xf32>>, memref<16xf32>), ^done(%e : f32)
  ^done(%s: f32):
    scf.yield %s : f32
  }
  return %v : f32
}

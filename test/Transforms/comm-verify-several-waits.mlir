// RUN: comm-opt %s --comm-verify --split-input-file --verify-diagnostics

// Tests that what several waits return is not what the collective reads: a loop may write it while another collective
// reads that.
comm.group @dp #comm.ranks<[[0, 1]]>
func.func @writes_what_was_gathered(%a: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %v = comm.compute "v"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %f = comm.all_gather %v on @dp : (tensor<4xf32>) -> !comm.future<tensor<8xf32>>
  %w0 = comm.wait %f : !comm.future<tensor<8xf32>>
  %w1 = comm.wait %f : !comm.future<tensor<8xf32>>
  scf.for %i = %c0 to %n step %c1 {
    %g = comm.all_gather %v on @dp : (tensor<4xf32>) -> !comm.future<tensor<8xf32>>
    %x = comm.compute "x"(%v) : (tensor<4xf32>) -> tensor<8xf32>
    comm.fsdp.copy %x into %w1 : tensor<8xf32> into tensor<8xf32>
    comm.fsdp.copy %x into %w0 : tensor<8xf32> into tensor<8xf32>
    %w = comm.wait %g : !comm.future<tensor<8xf32>>
  }
  return %a : tensor<4xf32>
}

// -----

// Tests that what several waits return is one memory, whichever of them is written.
comm.group @dp #comm.ranks<[[0, 1]]>
func.func @writes_what_is_sent(%a: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %f = comm.all_gather %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<8xf32>>
  %w0 = comm.wait %f : !comm.future<tensor<8xf32>>
  %w1 = comm.wait %f : !comm.future<tensor<8xf32>>
  scf.for %i = %c0 to %n step %c1 {
    // expected-note@+1 {{the collective is started here}}
    %g = comm.all_gather %w0 on @dp : (tensor<8xf32>) -> !comm.future<tensor<16xf32>>
    %x = comm.compute "x"(%a) : (tensor<4xf32>) -> tensor<8xf32>
    // expected-error@+1 {{writes operand #1, which is in flight}}
    comm.fsdp.copy %x into %w1 : tensor<8xf32> into tensor<8xf32>
    %w = comm.wait %g : !comm.future<tensor<16xf32>>
  }
  return %a : tensor<4xf32>
}

// -----

// Tests the other of the two.
comm.group @dp #comm.ranks<[[0, 1]]>
func.func @writes_the_other(%a: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %f = comm.all_gather %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<8xf32>>
  %w0 = comm.wait %f : !comm.future<tensor<8xf32>>
  %w1 = comm.wait %f : !comm.future<tensor<8xf32>>
  scf.for %i = %c0 to %n step %c1 {
    // expected-note@+1 {{the collective is started here}}
    %g = comm.all_gather %w1 on @dp : (tensor<8xf32>) -> !comm.future<tensor<16xf32>>
    %x = comm.compute "x"(%a) : (tensor<4xf32>) -> tensor<8xf32>
    // expected-error@+1 {{writes operand #1, which is in flight}}
    comm.fsdp.copy %x into %w0 : tensor<8xf32> into tensor<8xf32>
    %w = comm.wait %g : !comm.future<tensor<16xf32>>
  }
  return %a : tensor<4xf32>
}

// -----

// Tests that what a wait returns is not what its collective reads if the future comes from another basic block: it may be
// written while another collective reads that.
comm.group @dp #comm.ranks<[[0, 1]]>
func.func @from_another_block(%a: tensor<4xf32>) -> tensor<4xf32> {
  %x = comm.compute "x"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %v = comm.compute "v"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %f = comm.all_reduce sum %a into %v on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %g = comm.all_gather %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<8xf32>>
  cf.br ^bb1
^bb1:
  %w = comm.wait %f : !comm.future<tensor<4xf32>>
  %u = comm.wait %g : !comm.future<tensor<8xf32>>
  %y = comm.compute "y"(%x) : (tensor<4xf32>) -> tensor<8xf32>
  %h = comm.all_reduce max %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  comm.fsdp.copy %x into %w : tensor<4xf32> into tensor<4xf32>
  comm.fsdp.copy %y into %u : tensor<8xf32> into tensor<8xf32>
  %done = comm.wait %h : !comm.future<tensor<4xf32>>
  return %done : tensor<4xf32>
}

// -----

// Tests that it is the destination there.
comm.group @dp #comm.ranks<[[0, 1]]>
func.func @destination_from_another_block(%a: tensor<4xf32>) -> tensor<4xf32> {
  %v = comm.compute "v"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %f = comm.all_reduce sum %a into %v on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  cf.br ^bb1
^bb1:
  %w = comm.wait %f : !comm.future<tensor<4xf32>>
  // expected-note@+1 {{the collective is started here}}
  %h = comm.all_reduce max %v on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  // expected-error@+1 {{writes operand #1, which is in flight}}
  comm.fsdp.copy %a into %w : tensor<4xf32> into tensor<4xf32>
  %done = comm.wait %h : !comm.future<tensor<4xf32>>
  return %done : tensor<4xf32>
}

// -----

// Tests the same of a future that leaves a branch.
comm.group @dp #comm.ranks<[[0, 1]]>
func.func @from_a_branch(%a: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  %x = comm.compute "x"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %f = scf.if %c -> !comm.future<tensor<4xf32>> {
    %p = comm.all_reduce sum %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
    scf.yield %p : !comm.future<tensor<4xf32>>
  } else {
    %q = comm.all_reduce max %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
    scf.yield %q : !comm.future<tensor<4xf32>>
  }
  %w = comm.wait %f : !comm.future<tensor<4xf32>>
  %g = comm.all_reduce sum %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  comm.fsdp.copy %x into %w : tensor<4xf32> into tensor<4xf32>
  %done = comm.wait %g : !comm.future<tensor<4xf32>>
  // expected-note@+1 {{the collective is started here}}
  %h = comm.all_reduce max %w on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  // expected-error@+1 {{writes operand #1, which is in flight}}
  comm.fsdp.copy %a into %w : tensor<4xf32> into tensor<4xf32>
  %end = comm.wait %h : !comm.future<tensor<4xf32>>
  return %end : tensor<4xf32>
}

// -----

// Tests that a wait in a loop returns the memory that a wait in front of it has returned.
comm.group @dp #comm.ranks<[[0, 1]]>
func.func @waits_in_the_loop(%a: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %f = comm.all_gather %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<8xf32>>
  %w0 = comm.wait %f : !comm.future<tensor<8xf32>>
  scf.for %i = %c0 to %n step %c1 {
    // expected-note@+1 {{the collective is started here}}
    %g = comm.all_gather %w0 on @dp : (tensor<8xf32>) -> !comm.future<tensor<16xf32>>
    %w1 = comm.wait %f : !comm.future<tensor<8xf32>>
    %x = comm.compute "x"(%a) : (tensor<4xf32>) -> tensor<8xf32>
    // expected-error@+1 {{writes operand #1, which is in flight}}
    comm.fsdp.copy %x into %w1 : tensor<8xf32> into tensor<8xf32>
    %w = comm.wait %g : !comm.future<tensor<16xf32>>
  }
  return %a : tensor<4xf32>
}

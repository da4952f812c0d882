// RUN: comm-opt %s --comm-verify --split-input-file --verify-diagnostics

comm.group @dp #comm.iota<[1, 4]>

// Tests that a program on several streams whose events cover every dependence is accepted. One event covers all that
// its stream has done and awaited before; views are on no stream; a wait needs no event of the stream of its start.
func.func @covered(%x: tensor<4xf32>) -> tensor<16xf32> {
  %entry = comm.record on 0 : !comm.event
  comm.await_event %entry on 1 : !comm.event
  comm.await_event %entry on 2 : !comm.event
  %f = comm.all_gather %x on @dp {comm.stream = 1 : i64} : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %a = comm.compute "neg"(%x) {comm.stream = 2 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %b = comm.compute "abs"(%a) {comm.stream = 2 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %v = comm.compute "view"(%b) aliases [0] : (tensor<4xf32>) -> tensor<2x2xf32>
  %e = comm.record on 2 : !comm.event
  %w = comm.wait %f : !comm.future<tensor<16xf32>>
  comm.await_event %e on 0 : !comm.event
  %y = comm.compute "op"(%w, %v, %a) : (tensor<16xf32>, tensor<2x2xf32>, tensor<4xf32>) -> tensor<16xf32>
  return %y : tensor<16xf32>
}

// Tests that knowledge is passed on: stream 0 knows of stream 2 by way of stream 3.
func.func @transitive(%x: tensor<4xf32>) -> tensor<4xf32> {
  %entry = comm.record on 0 : !comm.event
  comm.await_event %entry on 2 : !comm.event
  %a = comm.compute "neg"(%x) {comm.stream = 2 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %e2 = comm.record on 2 : !comm.event
  comm.await_event %e2 on 3 : !comm.event
  %b = comm.compute "abs"(%a) {comm.stream = 3 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %e3 = comm.record on 3 : !comm.event
  comm.await_event %e3 on 0 : !comm.event
  %y = comm.compute "add"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// Tests that events without operations on other streams are no concern.
func.func @anchors_only(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = comm.record on 0 : !comm.event
  comm.await_event %e on 1 : !comm.event
  return %x : tensor<4xf32>
}

// -----

// Tests that a removed event is found, with both operations.
func.func @without_event(%x: tensor<4xf32>) -> tensor<4xf32> {
  %entry = comm.record on 0 : !comm.event
  comm.await_event %entry on 2 : !comm.event
  // expected-note @+1 {{the 'comm.compute' on stream 2 is here}}
  %a = comm.compute "neg"(%x) {comm.stream = 2 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error @+1 {{runs on stream 0 and depends on an operation of stream 2; expected stream 0 to await an event that is recorded after it}}
  %y = comm.compute "abs"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

// Tests that an event that is recorded too early does not cover the operation, also if a view is in between.
func.func @too_early(%x: tensor<4xf32>) -> tensor<4xf32> {
  %entry = comm.record on 0 : !comm.event
  comm.await_event %entry on 2 : !comm.event
  %e = comm.record on 2 : !comm.event
  // expected-note @+1 {{the 'comm.compute' on stream 2 is here}}
  %a = comm.compute "neg"(%x) {comm.stream = 2 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  comm.await_event %e on 0 : !comm.event
  %v = comm.compute "view"(%a) aliases [0] : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error @+1 {{runs on stream 0 and depends on an operation of stream 2}}
  %y = comm.compute "abs"(%v) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that a start has to know its input, and a wait passes on what its start knew.
func.func @start(%x: tensor<4xf32>) -> tensor<16xf32> {
  %entry = comm.record on 0 : !comm.event
  comm.await_event %entry on 1 : !comm.event
  // expected-note @+1 {{the 'comm.compute' on stream 0 is here}}
  %a = comm.compute "neg"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error @+1 {{runs on stream 1 and depends on an operation of stream 0}}
  %f = comm.all_gather %a on @dp {comm.stream = 1 : i64} : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w = comm.wait %f : !comm.future<tensor<16xf32>>
  return %w : tensor<16xf32>
}

// -----

// Tests that a buffer must not be written while another stream may still read it.
func.func @write_after_read(%x: memref<4xf32>, %y: memref<4xf32>) {
  %entry = comm.record on 0 : !comm.event
  comm.await_event %entry on 2 : !comm.event
  // expected-note @+1 {{the 'comm.compute' on stream 2 is here}}
  comm.compute "neg"(%x, %y) mutates [1] {comm.stream = 2 : i64} : (memref<4xf32>, memref<4xf32>) -> ()
  // expected-error @+1 {{runs on stream 0 and depends on an operation of stream 2}}
  comm.compute "zero_"(%x) mutates [0] : (memref<4xf32>) -> ()
  %e = comm.record on 2 : !comm.event
  comm.await_event %e on 0 : !comm.event
  return
}

// -----

// Tests that a block begins and ends on stream 0.
// expected-note @+1 {{the block begins on stream 0}}
func.func @no_entry(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+2 {{is the first operation on stream 2; expected this stream to await an event of stream 0 that is recorded in the block}}
  // expected-error @+1 {{runs on stream 2; expected stream 0 to await an event of it before the block ends}}
  %a = comm.compute "neg"(%x) {comm.stream = 2 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-note @+1 {{the block ends here, on stream 0}}
  return %a : tensor<4xf32>
}

// -----

// Tests that the rules hold in inner blocks, which begin on stream 0 whatever the outer block knows.
func.func @inner(%x: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  %entry = comm.record on 0 : !comm.event
  comm.await_event %entry on 2 : !comm.event
  // expected-note @+1 {{the block begins on stream 0}}
  %y = scf.if %c -> tensor<4xf32> {
    // expected-error @+1 {{is the first operation on stream 2}}
    %a = comm.compute "neg"(%x) {comm.stream = 2 : i64} : (tensor<4xf32>) -> tensor<4xf32>
    %e = comm.record on 2 : !comm.event
    comm.await_event %e on 0 : !comm.event
    scf.yield %a : tensor<4xf32>
  } else {
    scf.yield %x : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}

// -----

// Tests that control flow is on stream 0 and needs to know what its blocks use.
func.func @region(%x: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  %entry = comm.record on 0 : !comm.event
  comm.await_event %entry on 2 : !comm.event
  // expected-note @+1 {{the 'comm.compute' on stream 2 is here}}
  %a = comm.compute "neg"(%x) {comm.stream = 2 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error @+1 {{runs on stream 0 and depends on an operation of stream 2}}
  %y = scf.if %c -> tensor<4xf32> {
    %b = comm.compute "abs"(%a) : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  } else {
    scf.yield %x : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that what stands behind a start in the accesses to one storage needs what the start needs. The buffer that the
// broadcast writes is kept in memory, so it may be any buffer for all that is known, and so may the argument: the store
// depends on the broadcast's start alone, and the broadcast comes after the wait that ends the reads of the argument.
func.func @behind_a_start(%a: memref<4xi8>, %v: i8, %i: index) -> memref<1xmemref<4xi8>> {
  %entry = comm.record on 0 : !comm.event
  comm.await_event %entry on 1 : !comm.event
  %m = memref.alloc() : memref<4xi8>
  %kept = memref.alloc() : memref<1xmemref<4xi8>>
  %f = comm.all_reduce sum %a into %m on @dp {comm.stream = 1 : i64} : (memref<4xi8>) -> !comm.future<memref<4xi8>>
  // expected-note @+1 {{the 'comm.wait' on stream 1 is here}}
  %r = comm.wait %f keeping (%a, %m : memref<4xi8>, memref<4xi8>) {comm.stream = 1 : i64} : !comm.future<memref<4xi8>>
  %g = comm.broadcast %m into %m on @dp root 0 {comm.stream = 1 : i64} : (memref<4xi8>) -> !comm.future<memref<4xi8>>
  // expected-error @+1 {{runs on stream 0 and depends on an operation of stream 1}}
  memref.store %v, %a[%i] : memref<4xi8>
  %s = comm.wait %g keeping (%m : memref<4xi8>) : !comm.future<memref<4xi8>>
  memref.store %s, %kept[%i] : memref<1xmemref<4xi8>>
  %other = memref.load %kept[%i] : memref<1xmemref<4xi8>>
  memref.store %v, %other[%i] : memref<4xi8>
  return %kept : memref<1xmemref<4xi8>>
}

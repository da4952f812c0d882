// Tests that operations without memory effects neither make nor read a tensor whose storage the program writes and reads again.

// RUN: comm-opt %s --comm-verify --verify-diagnostics --split-input-file -o /dev/null

// Tests a fill that a computation overwrites, and a read of it: upstream folds the read to the value from before.
func.func @folded_read(%x: tensor<16xf32>) -> (tensor<16xf32>, f32) {
  %c0 = arith.constant 0 : index
  %c = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16xf32>
  // expected-error@+1 {{'linalg.fill' op expected an operation with memory effects that makes a tensor whose storage is written, such as bufferization.alloc_tensor or comm.compute}}
  %a = linalg.fill ins(%c : f32) outs(%e : tensor<16xf32>) -> tensor<16xf32>
  // expected-note@+1 {{the storage is written here}}
  comm.compute "add"(%x, %x, %a) mutates [2] : (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) -> ()
  // expected-error@+1 {{'tensor.extract' op expected an operation with memory effects that reads a tensor whose storage is written, such as comm.compute}}
  %v = tensor.extract %a[%c0] : tensor<16xf32>
  return %a, %v : tensor<16xf32>, f32
}

// -----

// Tests an insertion that is written: upstream reads the source of the insertion in place of its slice.
func.func @slice_of_insertion(%x: tensor<16xf32>, %y: tensor<8xf32>) -> (tensor<16xf32>, tensor<8xf32>) {
  %n = comm.compute "neg"(%x) : (tensor<16xf32>) -> tensor<16xf32>
  // expected-error@+1 {{'tensor.insert_slice' op expected an operation with memory effects that makes a tensor}}
  %i = tensor.insert_slice %y into %n[0] [8] [1] : tensor<8xf32> into tensor<16xf32>
  // expected-note@+1 {{the storage is written here}}
  comm.compute "add"(%x, %x, %i) mutates [2] : (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) -> ()
  %s = tensor.extract_slice %i[0] [8] [1] : tensor<16xf32> to tensor<8xf32>
  %q = comm.compute "neg"(%s) : (tensor<8xf32>) -> tensor<8xf32>
  return %i, %q : tensor<16xf32>, tensor<8xf32>
}

// -----

// Tests a destination that is read under its old name after the collective: it is a place, and not to be folded.
comm.group @w #comm.iota<[1, 2]>
func.func @destination_read_again(%x: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
  %c = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16xf32>
  // expected-error@+1 {{'linalg.fill' op expected an operation with memory effects that makes a tensor}}
  %a = linalg.fill ins(%c : f32) outs(%e : tensor<16xf32>) -> tensor<16xf32>
  // expected-note@+1 {{the storage is written here}}
  %f = comm.all_reduce sum %x into %a on @w : (tensor<16xf32>) -> !comm.future<tensor<16xf32>>
  %v = comm.wait %f : !comm.future<tensor<16xf32>>
  %u = comm.compute "neg"(%a) : (tensor<16xf32>) -> tensor<16xf32>
  return %v, %u : tensor<16xf32>, tensor<16xf32>
}

// -----

// Tests calls, branches and loops: a tensor is a place under all its names.
func.func private @writes(%p: tensor<4xf32>, %x: tensor<4xf32>) {
  // expected-note@+1 {{the storage is written here}}
  comm.fsdp.copy %x into %p : tensor<4xf32> into tensor<4xf32>
  return
}
func.func @caller(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'arith.constant' op expected an operation with memory effects that makes a tensor}}
  %k = arith.constant dense<1.0> : tensor<4xf32>
  call @writes(%k, %x) : (tensor<4xf32>, tensor<4xf32>) -> ()
  return %k : tensor<4xf32>
}
func.func @branch(%x: tensor<4xf32>, %y: tensor<4xf32>, %c: i1) -> tensor<4xf32> {
  // expected-error@+1 {{'arith.constant' op expected an operation with memory effects that makes a tensor}}
  %k = arith.constant dense<1.0> : tensor<4xf32>
  %r = scf.if %c -> tensor<4xf32> {
    scf.yield %k : tensor<4xf32>
  } else {
    scf.yield %y : tensor<4xf32>
  }
  // expected-note@+1 {{the storage is written here}}
  comm.fsdp.copy %x into %r : tensor<4xf32> into tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

// Tests what is allowed: places that operations with effects make and read, with views and their sizes; values as
// destinations, read by anything before or after the collective; and the result of a wait in a place that nothing writes again.
comm.group @w #comm.iota<[1, 2]>
func.func @allowed(%p: tensor<16xf32>, %q: tensor<16xf32>, %x: tensor<16xf32>) -> (tensor<8xf32>, tensor<16xf32>, f32, tensor<16xf32>) {
  %c0 = arith.constant 0 : index
  comm.fsdp.copy %x into %p : tensor<16xf32> into tensor<16xf32>
  %n = tensor.dim %p, %c0 : tensor<16xf32>
  %s = tensor.extract_slice %p[0] [8] [1] : tensor<16xf32> to tensor<8xf32>
  %copy = comm.compute "copy"(%s) : (tensor<8xf32>) -> tensor<8xf32>
  %exp = linalg.exp ins(%copy : tensor<8xf32>) outs(%copy : tensor<8xf32>) -> tensor<8xf32>
  %own = bufferization.alloc_tensor() : tensor<16xf32>
  comm.compute "update"(%own, %x) mutates [0] : (tensor<16xf32>, tensor<16xf32>) -> ()
  %e = tensor.empty() : tensor<16xf32>
  %a = linalg.exp ins(%x : tensor<16xf32>) outs(%e : tensor<16xf32>) -> tensor<16xf32>
  %before = tensor.extract %a[%c0] : tensor<16xf32>
  %f = comm.all_reduce sum %x into %a on @w : (tensor<16xf32>) -> !comm.future<tensor<16xf32>>
  %v = comm.wait %f : !comm.future<tensor<16xf32>>
  %after = tensor.extract %a[%c0] : tensor<16xf32>
  %sum = arith.addf %before, %after : f32
  %g = comm.all_reduce sum %x into %q on @w : (tensor<16xf32>) -> !comm.future<tensor<16xf32>>
  %u = comm.wait %g : !comm.future<tensor<16xf32>>
  %log = linalg.log ins(%u : tensor<16xf32>) outs(%e : tensor<16xf32>) -> tensor<16xf32>
  return %exp, %v, %sum, %log : tensor<8xf32>, tensor<16xf32>, f32, tensor<16xf32>
}

// -----

comm.group @w #comm.iota<[1, 2]>

// Tests that a loop that writes what it carries is the only user of it: others would see whether the loop copies it.
func.func private @carried(%x: tensor<16xf32>, %c: index) -> (tensor<16xf32>, tensor<16xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = comm.compute "make"(%x) : (tensor<16xf32>) -> tensor<16xf32>
  %v = comm.compute "view"(%a) aliases [0] : (tensor<16xf32>) -> tensor<16xf32>
  // expected-error@+1 {{'scf.for' op expected to be the only user of a tensor that it carries and whose storage is written}}
  %r = scf.for %i = %c0 to %c step %c1 iter_args(%p = %v) -> tensor<16xf32> {
    // expected-note@+1 {{the storage is written here}}
    comm.compute "update"(%p, %x) mutates [0] : (tensor<16xf32>, tensor<16xf32>) -> ()
    scf.yield %p : tensor<16xf32>
  }
  return %a, %r : tensor<16xf32>, tensor<16xf32>
}

// Tests that nobody sees a copy of what only loops know.
func.func private @carried_alone(%x: tensor<16xf32>, %c: index) -> tensor<16xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = comm.compute "make"(%x) : (tensor<16xf32>) -> tensor<16xf32>
  %r = scf.for %i = %c0 to %c step %c1 iter_args(%p = %a) -> tensor<16xf32> {
    %q = scf.for %j = %c0 to %c step %c1 iter_args(%s = %p) -> tensor<16xf32> {
      %t = comm.compute "add"(%s, %x) aliases [0] mutates [0] : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
      scf.yield %t : tensor<16xf32>
    }
    scf.yield %q : tensor<16xf32>
  }
  comm.compute "update"(%r, %x) mutates [0] : (tensor<16xf32>, tensor<16xf32>) -> ()
  return %r : tensor<16xf32>
}

// Tests that a loop that only reads what is written before and after it may copy it.
func.func @read_by_loop(%x: tensor<16xf32>, %y: tensor<16xf32>, %c: index) -> tensor<16xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  comm.compute "update"(%x, %y) mutates [0] : (tensor<16xf32>, tensor<16xf32>) -> ()
  %r:2 = scf.for %i = %c0 to %c step %c1 iter_args(%p = %x, %s = %y) -> (tensor<16xf32>, tensor<16xf32>) {
    %t = comm.compute "add"(%p, %s) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
    scf.yield %p, %t : tensor<16xf32>, tensor<16xf32>
  }
  comm.compute "update"(%x, %r#1) mutates [0] : (tensor<16xf32>, tensor<16xf32>) -> ()
  return %r#1 : tensor<16xf32>
}

// Tests that the first iteration's view of a tensor from outside is not written in a later part of the body.
func.func private @repeated(%x: tensor<16xf32>, %y: tensor<16xf32>, %c: index) -> tensor<16xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %c step %c1 iter_args(%o = %y) -> tensor<16xf32> {
    %t = comm.compute "read"(%x) : (tensor<16xf32>) -> tensor<16xf32>
    // expected-error@+1 {{'scf.for' op expected to be the only user of a tensor that it carries and whose storage is written}}
    %q = scf.for %j = %c0 to %c step %c1 iter_args(%s = %x) -> tensor<16xf32> {
      // expected-note@+1 {{the storage is written here}}
      comm.compute "update"(%s, %y) mutates [0] : (tensor<16xf32>, tensor<16xf32>) -> ()
      scf.yield %s : tensor<16xf32>
    }
    scf.yield %t : tensor<16xf32>
  }
  return %r : tensor<16xf32>
}

// -----

// Tests that a function that calls itself through another one is given no tensor that is written: each call may get a copy.
func.func private @odd(%x: tensor<16xf32>, %c: i1) {
  // expected-note@+1 {{the storage is written here}}
  comm.compute "update"(%x) mutates [0] : (tensor<16xf32>) -> ()
  // expected-error@+1 {{'func.call' op expected to pass no tensor whose storage is written to a function that calls itself}}
  func.call @even(%x, %c) : (tensor<16xf32>, i1) -> ()
  return
}
func.func private @even(%x: tensor<16xf32>, %c: i1) {
  scf.if %c {
    // expected-error@+1 {{'func.call' op expected to pass no tensor whose storage is written to a function that calls itself}}
    func.call @odd(%x, %c) : (tensor<16xf32>, i1) -> ()
  }
  return
}

// -----

// Tests that a function that writes a tensor is given all of it: it gets a copy of any other part than the first elements.
func.func private @change(%x: tensor<8xf32>) {
  // expected-note@+1 {{the storage is written here}}
  comm.compute "update"(%x) mutates [0] : (tensor<8xf32>) -> ()
  return
}
func.func private @parts(%x: tensor<16xf32>, %y: tensor<8xf32>, %c: i1) {
  %first = tensor.extract_slice %x[0] [8] [1] : tensor<16xf32> to tensor<8xf32>
  func.call @change(%first) : (tensor<8xf32>) -> ()
  %all = comm.compute "view"(%y) aliases [0] : (tensor<8xf32>) -> tensor<8xf32>
  func.call @change(%all) : (tensor<8xf32>) -> ()
  %last = tensor.extract_slice %x[8] [8] [1] : tensor<16xf32> to tensor<8xf32>
  // expected-error@+1 {{'func.call' op expected to pass no part of a tensor whose storage is written to a function, which gets a copy of it}}
  func.call @change(%last) : (tensor<8xf32>) -> ()
  %every = tensor.extract_slice %x[0] [8] [2] : tensor<16xf32> to tensor<8xf32>
  // expected-error@+1 {{'func.call' op expected to pass no part of a tensor}}
  func.call @change(%every) : (tensor<8xf32>) -> ()
  %left, %right = comm.fsdp.split_with_sizes %x sizes [8, 8] : (tensor<16xf32>) -> (tensor<8xf32>, tensor<8xf32>)
  func.call @change(%left) : (tensor<8xf32>) -> ()
  %table = comm.compute "view"(%right) aliases [0] : (tensor<8xf32>) -> tensor<2x4xf32>
  %line = comm.compute "view"(%table) aliases [0] : (tensor<2x4xf32>) -> tensor<8xf32>
  // expected-error@+1 {{'func.call' op expected to pass no part of a tensor}}
  func.call @change(%line) : (tensor<8xf32>) -> ()
  %some = scf.if %c -> tensor<8xf32> {
    scf.yield %first : tensor<8xf32>
  } else {
    scf.yield %last : tensor<8xf32>
  }
  // expected-error@+1 {{'func.call' op expected to pass no part of a tensor}}
  func.call @change(%some) : (tensor<8xf32>) -> ()
  %chosen = arith.select %c, %last, %y : tensor<8xf32>
  // expected-error@+1 {{'func.call' op expected to pass no part of a tensor}}
  func.call @change(%chosen) : (tensor<8xf32>) -> ()
  return
}

// -----

// Tests that a function that only reads may be given a part, but not if the part is used under the name that it returns.
func.func private @read(%x: tensor<8xf32>) -> tensor<8xf32> {
  %r = comm.compute "read"(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %r : tensor<8xf32>
}
func.func private @same(%x: tensor<8xf32>) -> tensor<8xf32> {
  return %x : tensor<8xf32>
}
func.func private @part_read(%x: tensor<16xf32>) -> tensor<8xf32> {
  %last = tensor.extract_slice %x[8] [8] [1] : tensor<16xf32> to tensor<8xf32>
  %r = func.call @read(%last) : (tensor<8xf32>) -> tensor<8xf32>
  // expected-error@+1 {{'func.call' op expected to pass no part of a tensor}}
  %s = func.call @same(%last) : (tensor<8xf32>) -> tensor<8xf32>
  // expected-note@+1 {{the storage is written here}}
  comm.compute "update"(%x) mutates [0] : (tensor<16xf32>) -> ()
  %t = comm.compute "add"(%r, %s) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %t : tensor<8xf32>
}

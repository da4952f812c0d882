// RUN: comm-opt %s --split-input-file --verify-diagnostics --comm-bufferize

// Tests that the result of a computation on tensors needs static sizes: nobody knows which symbolic size it has.
func.func @computed(%x: tensor<?xf32>) -> tensor<?xf32> {
  // expected-error @+2 {{cannot be bufferized: expected a known size for its result, got 'tensor<?xf32>'}}
  // expected-error @+1 {{failed to bufferize op}}
  %y = comm.compute "copy"(%x) : (tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

// Tests that a view and a mutated operand may have symbolic sizes.
func.func @passed_on(%x: tensor<?xf32>) -> tensor<?xf32> {
  comm.compute "add_"(%x) mutates [0] : (tensor<?xf32>) -> ()
  return %x : tensor<?xf32>
}

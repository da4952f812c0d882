// RUN: comm-opt %s --reorder-comm-overlap="passes=func.func(canonicalize),comm-schedule table=false" -verify-diagnostics

// Tests that a pass in `passes` may not put a tensor that is read afterwards in the place of a destination: the insertion
// of all of a tensor folds to the tensor, which the collective would then overwrite.

comm.group @world #comm.iota<[1, 2]>

func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %read = comm.compute "copy"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %zero = arith.constant dense<0.0> : tensor<4xf32>
  %value = tensor.insert_slice %read into %zero[0] [4] [1] : tensor<4xf32> into tensor<4xf32>
  // expected-error @below {{expected destination #0 to stay a value}}
  %f = comm.all_reduce sum %x into %value on @world : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %sum = comm.wait %f : !comm.future<tensor<4xf32>>
  return %sum, %read : tensor<4xf32>, tensor<4xf32>
}

// RUN: comm-opt %s -verify-diagnostics --split-input-file

// Tests that comm.variant is refused where it does not belong, and that anything but the name of a way is.

comm.group @dp #comm.iota<[1, 4]>
func.func @not_a_start(%x: tensor<4xf32>) {
  // expected-error @+1 {{expected 'comm.variant' on the start of a collective that is not a one-shot sum}}
  comm.compute "c"(%x) {comm.variant = "ring-4"} : (tensor<4xf32>) -> ()
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>
func.func @one_shot(%x: tensor<4xf32>) -> !comm.future<tensor<4xf32>> {
  // expected-error @+1 {{expected 'comm.variant' on the start of a collective that is not a one-shot sum}}
  %f = comm.all_reduce sum %x on @dp {one_shot, comm.variant = "ring-4"} : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return %f : !comm.future<tensor<4xf32>>
}

// -----

comm.group @dp #comm.iota<[1, 4]>
func.func @not_a_text(%x: tensor<4xf32>) -> !comm.future<tensor<4xf32>> {
  // expected-error @+1 {{expected 'comm.variant' to be "ring-N", "copy-engine", "symmetric" or "symmetric-N", with N from 1 to 64, got 4 : i64}}
  %f = comm.all_reduce sum %x on @dp {comm.variant = 4 : i64} : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return %f : !comm.future<tensor<4xf32>>
}

// -----

comm.group @dp #comm.iota<[1, 4]>
func.func @not_a_name(%x: tensor<4xf32>) -> !comm.future<tensor<4xf32>> {
  // expected-error @+1 {{with N from 1 to 64, got "ring-65"}}
  %f = comm.all_reduce sum %x on @dp {comm.variant = "ring-65"} : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return %f : !comm.future<tensor<4xf32>>
}

// -----

comm.group @dp #comm.iota<[1, 4]>
func.func @copy_engines_reduce(%x: tensor<4xf32>) -> !comm.future<tensor<4xf32>> {
  // expected-error @+1 {{expected 'comm.variant' of a reduction not to be "copy-engine": copy engines cannot reduce}}
  %f = comm.all_reduce sum %x on @dp {comm.variant = "copy-engine"} : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return %f : !comm.future<tensor<4xf32>>
}

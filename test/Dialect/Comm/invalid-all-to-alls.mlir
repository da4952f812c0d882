// RUN: comm-opt %s -verify-diagnostics --split-input-file

// Tests that all-to-alls that break a constraint are refused, with even pieces and with splits. The names say which.

func.func @all_to_all_c2_split(%x: tensor<4xf32>) {
  // expected-error @+1 {{C2: 'split' (1) is out of range for 'tensor<4xf32>'}}
  %f = comm.all_to_all %x on @dp split 1 : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

func.func @all_to_all_c2_concat(%x: tensor<4xf32>) {
  // expected-error @+1 {{C2: 'concat' (7) is out of range for 'tensor<4xf32>'}}
  %f = comm.all_to_all %x on @dp concat 7 : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

// expected-note @+1 {{the group has 4 ranks}}
comm.group @dp #comm.iota<[1, 4]>
func.func @all_to_all_c3_divides(%x: tensor<6x4xf32>) {
  // expected-error @+1 {{C3: expected dimension 0 of 'tensor<6x4xf32>' to be a multiple of the group's size (4), got 6}}
  %f = comm.all_to_all %x on @dp concat 1 : (tensor<6x4xf32>) -> !comm.future<tensor<1x16xf32>>
  return
}

// -----

// expected-note @+1 {{the group has 4 ranks}}
comm.group @dp #comm.iota<[1, 4]>
func.func @all_to_all_c3_shape(%x: tensor<8x4xf32>) {
  // expected-error @+1 {{C3: expected a value of shape 2x16 from 'tensor<8x4xf32>' over 4 ranks, got 'tensor<8x4xf32>'}}
  %f = comm.all_to_all %x on @dp concat 1 : (tensor<8x4xf32>) -> !comm.future<tensor<8x4xf32>>
  return
}

// -----

func.func @all_to_all_c7_together(%x: tensor<4xf32>) {
  // expected-error @+1 {{C7: expected input and output splits, got only input splits}}
  %f = comm.all_to_all %x on @dp input_splits [2, 2] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

// expected-note @+1 {{the group has 4 ranks}}
comm.group @dp #comm.iota<[1, 4]>
func.func @all_to_all_c7_count(%x: tensor<4xf32>) {
  // expected-error @+1 {{C7: expected one split per rank of the group (4), got 2 input splits and 2 output splits}}
  %f = comm.all_to_all %x on @dp input_splits [2, 2] output_splits [2, 2] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

func.func @all_to_all_c7_negative(%x: tensor<4xf32>) {
  // expected-error @+1 {{C7: expected non-negative input splits, got -1}}
  %f = comm.all_to_all %x on @dp input_splits [5, -1] output_splits [2, 2] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

func.func @all_to_all_c7_dims(%x: tensor<4x4xf32>) {
  // expected-error @+1 {{C7: expected equal split and concat dimensions for an exchange with splits, got 1 and 0}}
  %f = comm.all_to_all %x on @dp split 1 input_splits [2, 2] output_splits [2, 2] : (tensor<4x4xf32>) -> !comm.future<tensor<4x4xf32>>
  return
}

// -----

func.func @all_to_all_c3_splits(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{C3: expected value #0 to differ from its input, 'tensor<4x8xf32>', in dimension 0 only, got 'tensor<4x9xf32>'}}
  %f = comm.all_to_all %x on @dp input_splits [2, 2] output_splits [2, 2] : (tensor<4x8xf32>) -> !comm.future<tensor<4x9xf32>>
  return
}

// -----

func.func @all_to_all_c3_splits_rank(%x: tensor<4x8xf32>, %a: index) {
  // expected-error @+1 {{C3: expected value #0 to differ from its input, 'tensor<4x8xf32>', in dimension 0 only, got 'tensor<4xf32>'}}
  %f = comm.all_to_all %x on @dp input_splits [%a, 2] output_splits [%a, 2] : (tensor<4x8xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

func.func @all_to_all_c7_together_dynamic(%x: tensor<4xf32>, %a: index) {
  // expected-error @+1 {{C7: expected input and output splits, got only output splits}}
  %f = comm.all_to_all %x on @dp output_splits [%a, %a] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

// expected-note @+1 {{the group has 4 ranks}}
comm.group @dp #comm.iota<[1, 4]>
func.func @all_to_all_c7_count_dynamic(%x: tensor<4xf32>, %a: index) {
  // expected-error @+1 {{C7: expected one split per rank of the group (4), got 4 input splits and 3 output splits}}
  %f = comm.all_to_all %x on @dp input_splits [%a, 1, 1, 1] output_splits [%a, 1, 1] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

func.func @all_to_all_c7_negative_beside_dynamic(%x: tensor<4xf32>, %a: index) {
  // expected-error @+1 {{C7: expected non-negative output splits, got -2}}
  %f = comm.all_to_all %x on @dp input_splits [%a, %a] output_splits [-2, %a] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

func.func @all_to_all_c7_dims_dynamic(%x: tensor<4x4xf32>, %a: index) {
  // expected-error @+1 {{C7: expected equal split and concat dimensions for an exchange with splits, got 0 and 1}}
  %f = comm.all_to_all %x on @dp concat 1 input_splits [%a, 2] output_splits [%a, 2] : (tensor<4x4xf32>) -> !comm.future<tensor<4x4xf32>>
  return
}

// -----

func.func @all_to_all_c7_operands(%x: tensor<4xf32>, %a: index) {
  // expected-error @+1 {{C7: expected 1 operands for the output splits, got 2}}
  %f = "comm.all_to_all"(%x, %a, %a) <{group = @dp, operandSegmentSizes = array<i32: 1, 0, 0, 2>, static_input_splits = array<i64: 2, 2>, static_output_splits = array<i64: -9223372036854775808, 2>}> : (tensor<4xf32>, index, index) -> !comm.future<tensor<4xf32>>
  return
}

// -----

func.func @all_to_all_c7_operands_without_list(%x: tensor<4xf32>, %a: index) {
  // expected-error @+1 {{C7: expected 0 operands for the input splits, got 1}}
  %f = "comm.all_to_all"(%x, %a) <{group = @dp, operandSegmentSizes = array<i32: 1, 0, 1, 0>}> : (tensor<4xf32>, index) -> !comm.future<tensor<4xf32>>
  return
}

// RUN: comm-opt %s -verify-diagnostics --split-input-file

// Tests that collectives that only move data and break a constraint are refused. The names say which.

func.func @all_gather_c1_values(%x: tensor<4xf32>) {
  // expected-error @+1 {{C1: 1 inputs for 2 values of the future}}
  %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>, tensor<16xf32>>
  return
}

// -----

func.func @all_gather_c1_nothing() {
  // expected-error @+1 {{C1: 0 inputs for 0 values of the future}}
  %f = comm.all_gather on @dp : () -> !comm.future<>
  return
}

// -----

func.func @all_gather_c1_dests(%x: tensor<4xf32>, %d: tensor<16xf32>) {
  // expected-error @+1 {{C1: 2 destinations for 1 values of the future}}
  %f = comm.all_gather %x into %d, %d on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  return
}

// -----

func.func @all_gather_c1_dests_generic(%x: tensor<4xf32>, %d: tensor<16xf32>) {
  // expected-error @+1 {{C1: 2 destinations for 1 values of the future}}
  %f = "comm.all_gather"(%x, %d, %d) <{group = @dp, operandSegmentSizes = array<i32: 1, 2>}> : (tensor<4xf32>, tensor<16xf32>, tensor<16xf32>) -> !comm.future<tensor<16xf32>>
  return
}

// -----

func.func @all_gather_segments(%x: tensor<4xf32>) {
  // expected-error @+1 {{operand count (1) does not match with the total size (3) specified in attribute 'operandSegmentSizes'}}
  %f = "comm.all_gather"(%x) <{group = @dp, operandSegmentSizes = array<i32: 1, 2>}> : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  return
}

// -----

func.func @all_gather_result(%x: tensor<4xf32>) {
  // expected-error @+1 {{result #0 must be future of a collective's results, but got '!comm.event'}}
  %f = "comm.all_gather"(%x) <{group = @dp, operandSegmentSizes = array<i32: 1, 0>}> : (tensor<4xf32>) -> !comm.event
  return
}

// -----

func.func @all_gather_operand(%x: f32) {
  // expected-error @+1 {{operand #0 must be variadic of ranked tensor or memref, but got 'f32'}}
  %f = comm.all_gather %x on @dp : (f32) -> !comm.future<tensor<4xf32>>
  return
}

// -----

func.func @all_gather_c2_range(%x: tensor<4xf32>) {
  // expected-error @+1 {{C2: 'dim' 1 is no dimension of 'tensor<4xf32>'}}
  %f = comm.all_gather %x on @dp dim 1 : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  return
}

// -----

func.func @all_gather_c2_negative(%x: tensor<4xf32>) {
  // expected-error @+1 {{C2: 'dim' -1 is no dimension of 'tensor<4xf32>'}}
  %f = comm.all_gather %x on @dp dim -1 : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  return
}

// -----

func.func @all_gather_c2_scalar(%x: tensor<f32>) {
  // expected-error @+1 {{C2: 'dim' 0 is no dimension of 'tensor<f32>'}}
  %f = comm.all_gather %x on @dp : (tensor<f32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>
func.func @all_gather_c3(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{C3: an input of type 'tensor<4x8xf32>' over 4 ranks does not give a value of type 'tensor<8x8xf32>'}}
  %f = comm.all_gather %x on @dp : (tensor<4x8xf32>) -> !comm.future<tensor<8x8xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>
func.func @all_gather_c3_other_dim(%x: tensor<4x?xf32>) {
  // expected-error @+1 {{C3: an input of type 'tensor<4x?xf32>' over 4 ranks does not give a value of type 'tensor<8x?xf32>'}}
  %f = comm.all_gather %x on @dp dim 1 : (tensor<4x?xf32>) -> !comm.future<tensor<8x?xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>
func.func @all_gather_c3_rank(%x: tensor<4xf32>) {
  // expected-error @+1 {{C3: an input of type 'tensor<4xf32>' over 4 ranks does not give a value of type 'tensor<16x1xf32>'}}
  %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16x1xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>
func.func @all_gather_c3_overflow(%x: tensor<4611686018427387904xi8>) {
  // expected-error @+1 {{C3: an input of type 'tensor<4611686018427387904xi8>' over 4 ranks does not give a value of type 'tensor<0xi8>'}}
  %f = comm.all_gather %x on @dp : (tensor<4611686018427387904xi8>) -> !comm.future<tensor<0xi8>>
  return
}

// -----

func.func @all_gather_c4(%x: tensor<4xf32>) {
  // expected-error @+1 {{C4: an input of 'f32' for a value of 'bf16'}}
  %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xbf16>>
  return
}

// -----

func.func @all_gather_c5_missing(%x: memref<4xf32>) {
  // expected-error @+1 {{C5: a collective on memrefs needs destinations}}
  %f = comm.all_gather %x on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  return
}

// -----

func.func @all_gather_c5_type(%x: memref<4xf32>, %d: memref<16xf32, 1>) {
  // expected-error @+1 {{C5: a destination of type 'memref<16xf32, 1>' for a value of type 'memref<16xf32>'}}
  %f = "comm.all_gather"(%x, %d) <{group = @dp, operandSegmentSizes = array<i32: 1, 1>}> : (memref<4xf32>, memref<16xf32, 1>) -> !comm.future<memref<16xf32>>
  return
}

// -----

func.func @all_gather_c5_mixed(%x: tensor<4xf32>, %d: memref<16xf32>) {
  // expected-error @+1 {{C5: tensors and memrefs are mixed}}
  %f = comm.all_gather %x into %d on @dp : (tensor<4xf32>) -> !comm.future<memref<16xf32>>
  return
}

// -----

func.func @all_gather_c6_missing(%x: tensor<4xf32>) {
  // expected-error @+1 {{C6: no comm.group @dp}}
  %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  return
}

// -----

func.func @all_gather_c6_not_a_group(%x: tensor<4xf32>) {
  // expected-error @+1 {{C6: no comm.group @all_gather_c6_not_a_group}}
  %f = comm.all_gather %x on @all_gather_c6_not_a_group : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  return
}

// -----

func.func @all_to_all_c2_split(%x: tensor<4xf32>) {
  // expected-error @+1 {{C2: 'split' 1 is no dimension of 'tensor<4xf32>'}}
  %f = comm.all_to_all %x on @dp split 1 : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

func.func @all_to_all_c2_concat(%x: tensor<4xf32>) {
  // expected-error @+1 {{C2: 'concat' 7 is no dimension of 'tensor<4xf32>'}}
  %f = comm.all_to_all %x on @dp concat 7 : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>
func.func @all_to_all_c3_divides(%x: tensor<6x4xf32>) {
  // expected-error @+1 {{C3: dimension 0 of 'tensor<6x4xf32>' does not divide by the 4 ranks of the group}}
  %f = comm.all_to_all %x on @dp concat 1 : (tensor<6x4xf32>) -> !comm.future<tensor<1x16xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>
func.func @all_to_all_c3_shape(%x: tensor<8x4xf32>) {
  // expected-error @+1 {{C3: an input of type 'tensor<8x4xf32>' over 4 ranks does not give a value of type 'tensor<8x4xf32>'}}
  %f = comm.all_to_all %x on @dp concat 1 : (tensor<8x4xf32>) -> !comm.future<tensor<8x4xf32>>
  return
}

// -----

func.func @all_to_all_c7_together(%x: tensor<4xf32>) {
  // expected-error @+1 {{C7: input and output splits go together}}
  %f = comm.all_to_all %x on @dp input_splits [2, 2] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>
func.func @all_to_all_c7_count(%x: tensor<4xf32>) {
  // expected-error @+1 {{C7: one split per rank expected, the group has 4}}
  %f = comm.all_to_all %x on @dp input_splits [2, 2] output_splits [2, 2] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

func.func @all_to_all_c7_negative(%x: tensor<4xf32>) {
  // expected-error @+1 {{C7: a negative split}}
  %f = comm.all_to_all %x on @dp input_splits [5, -1] output_splits [2, 2] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

func.func @all_to_all_c7_dims(%x: tensor<4x4xf32>) {
  // expected-error @+1 {{C7: splits need equal split and concat dimensions}}
  %f = comm.all_to_all %x on @dp split 1 input_splits [2, 2] output_splits [2, 2] : (tensor<4x4xf32>) -> !comm.future<tensor<4x4xf32>>
  return
}

// -----

func.func @all_to_all_c3_splits(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{C3: an input of type 'tensor<4x8xf32>' for a value of type 'tensor<4x9xf32>': they may differ in dimension 0 only}}
  %f = comm.all_to_all %x on @dp input_splits [2, 2] output_splits [2, 2] : (tensor<4x8xf32>) -> !comm.future<tensor<4x9xf32>>
  return
}

// -----

func.func @all_to_all_c3_splits_rank(%x: tensor<4x8xf32>, %a: index) {
  // expected-error @+1 {{C3: an input of type 'tensor<4x8xf32>' for a value of type 'tensor<4xf32>': they may differ in dimension 0 only}}
  %f = comm.all_to_all %x on @dp input_splits [%a, 2] output_splits [%a, 2] : (tensor<4x8xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

func.func @all_to_all_c7_together_dynamic(%x: tensor<4xf32>, %a: index) {
  // expected-error @+1 {{C7: input and output splits go together}}
  %f = comm.all_to_all %x on @dp output_splits [%a, %a] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>
func.func @all_to_all_c7_count_dynamic(%x: tensor<4xf32>, %a: index) {
  // expected-error @+1 {{C7: one split per rank expected, the group has 4}}
  %f = comm.all_to_all %x on @dp input_splits [%a, 1, 1, 1] output_splits [%a, 1, 1] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

func.func @all_to_all_c7_negative_beside_dynamic(%x: tensor<4xf32>, %a: index) {
  // expected-error @+1 {{C7: a negative split}}
  %f = comm.all_to_all %x on @dp input_splits [%a, %a] output_splits [-2, %a] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

func.func @all_to_all_c7_dims_dynamic(%x: tensor<4x4xf32>, %a: index) {
  // expected-error @+1 {{C7: splits need equal split and concat dimensions}}
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

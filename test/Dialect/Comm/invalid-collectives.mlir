// RUN: comm-opt %s -verify-diagnostics --split-input-file

// Tests that collectives that only move data and break a constraint are refused. The names say which.

func.func @all_gather_c1_values(%x: tensor<4xf32>) {
  // expected-error @+1 {{C1: expected one input per value of the future (2), got 1}}
  %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>, tensor<16xf32>>
  return
}

// -----

func.func @all_gather_c1_nothing() {
  // expected-error @+1 {{C1: expected at least one input, got none}}
  %f = comm.all_gather on @dp : () -> !comm.future<>
  return
}

// -----

func.func @all_gather_c1_dests(%x: tensor<4xf32>, %d: tensor<16xf32>) {
  // expected-error @+1 {{C1: expected one destination per value of the future (1), got 2}}
  %f = comm.all_gather %x into %d, %d on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  return
}

// -----

func.func @all_gather_c1_dests_generic(%x: tensor<4xf32>, %d: tensor<16xf32>) {
  // expected-error @+1 {{C1: expected one destination per value of the future (1), got 2}}
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
  // expected-error @+1 {{C2: 'dim' (1) is out of range for 'tensor<4xf32>'}}
  %f = comm.all_gather %x on @dp dim 1 : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  return
}

// -----

func.func @all_gather_c2_negative(%x: tensor<4xf32>) {
  // expected-error @+1 {{C2: 'dim' (-1) is out of range for 'tensor<4xf32>'}}
  %f = comm.all_gather %x on @dp dim -1 : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  return
}

// -----

func.func @all_gather_c2_scalar(%x: tensor<f32>) {
  // expected-error @+1 {{C2: 'dim' (0) is out of range for 'tensor<f32>'}}
  %f = comm.all_gather %x on @dp : (tensor<f32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

// expected-note @+1 {{the group has 4 ranks}}
comm.group @dp #comm.iota<[1, 4]>
func.func @all_gather_c3(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{C3: expected a value of shape 16x8 from 'tensor<4x8xf32>' over 4 ranks, got 'tensor<8x8xf32>'}}
  %f = comm.all_gather %x on @dp : (tensor<4x8xf32>) -> !comm.future<tensor<8x8xf32>>
  return
}

// -----

// expected-note @+1 {{the group has 4 ranks}}
comm.group @dp #comm.iota<[1, 4]>
func.func @all_gather_c3_other_dim(%x: tensor<4x?xf32>) {
  // expected-error @+1 {{C3: expected a value of shape 4x? from 'tensor<4x?xf32>' over 4 ranks, got 'tensor<8x?xf32>'}}
  %f = comm.all_gather %x on @dp dim 1 : (tensor<4x?xf32>) -> !comm.future<tensor<8x?xf32>>
  return
}

// -----

// expected-note @+1 {{the group has 4 ranks}}
comm.group @dp #comm.iota<[1, 4]>
func.func @all_gather_c3_rank(%x: tensor<4xf32>) {
  // expected-error @+1 {{C3: expected a value of shape 16 from 'tensor<4xf32>' over 4 ranks, got 'tensor<16x1xf32>'}}
  %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16x1xf32>>
  return
}

// -----

// expected-note @+1 {{the group has 4 ranks}}
comm.group @dp #comm.iota<[1, 4]>
func.func @all_gather_c3_overflow(%x: tensor<4611686018427387904xi8>) {
  // expected-error @+1 {{C3: expected dimension 0 of 'tensor<4611686018427387904xi8>', times the group's size (4), to be less than 2^63, got more}}
  %f = comm.all_gather %x on @dp : (tensor<4611686018427387904xi8>) -> !comm.future<tensor<0xi8>>
  return
}

// -----

func.func @all_gather_c4(%x: tensor<4xf32>) {
  // expected-error @+1 {{C4: expected input #0 with the element type of its value ('bf16'), got 'f32'}}
  %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xbf16>>
  return
}

// -----

func.func @all_gather_c5_missing(%x: memref<4xf32>) {
  // expected-error @+1 {{C5: expected destinations for a collective on memrefs, got none}}
  %f = comm.all_gather %x on @dp : (memref<4xf32>) -> !comm.future<memref<16xf32>>
  return
}

// -----

func.func @all_gather_c5_type(%x: memref<4xf32>, %d: memref<16xf32, 1>) {
  // expected-error @+1 {{C5: expected destination #0 of type 'memref<16xf32>', got 'memref<16xf32, 1>'}}
  %f = "comm.all_gather"(%x, %d) <{group = @dp, operandSegmentSizes = array<i32: 1, 1>}> : (memref<4xf32>, memref<16xf32, 1>) -> !comm.future<memref<16xf32>>
  return
}

// -----

func.func @all_gather_c5_mixed(%x: tensor<4xf32>, %d: memref<16xf32>) {
  // expected-error @+1 {{C5: expected only tensors or only memrefs, got both}}
  %f = comm.all_gather %x into %d on @dp : (tensor<4xf32>) -> !comm.future<memref<16xf32>>
  return
}

// -----

func.func @all_gather_c6_missing(%x: tensor<4xf32>) {
  // expected-error @+1 {{C6: expected @dp to name a comm.group}}
  %f = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  return
}

// -----

func.func @all_gather_c6_not_a_group(%x: tensor<4xf32>) {
  // expected-error @+1 {{C6: expected @all_gather_c6_not_a_group to name a comm.group}}
  %f = comm.all_gather %x on @all_gather_c6_not_a_group : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  return
}

// RUN: comm-opt %s -verify-diagnostics --split-input-file

// Tests that uneven splits, roots, peers, pairs, barriers and waits that break a constraint are refused.

func.func @all_to_all_c8_input(%x: tensor<4xf32>) {
  // expected-error @+1 {{C8: expected input splits that add up to the dimension's size (4), got 5}}
  %f = comm.all_to_all %x on @dp input_splits [2, 3] output_splits [2, 2] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

func.func @all_to_all_c8_output(%x: tensor<4xf32>) {
  // expected-error @+1 {{C8: expected output splits that add up to the dimension's size (9), got 4}}
  %f = comm.all_to_all %x on @dp input_splits [2, 2] output_splits [2, 2] : (tensor<4xf32>) -> !comm.future<tensor<9xf32>>
  return
}

// -----

func.func @all_to_all_c8_overflow(%x: tensor<?xf32>) {
  // expected-error @+1 {{C8: expected input splits that add up to less than 2^63, got more}}
  %f = comm.all_to_all %x on @dp input_splits [9223372036854775807, 1] output_splits [2, 2] : (tensor<?xf32>) -> !comm.future<tensor<?xf32>>
  return
}

// -----

func.func @all_to_all_c8_overflow_dynamic(%x: tensor<?xf32>, %a: index) {
  // expected-error @+1 {{C8: expected output splits that add up to less than 2^63, got more}}
  %f = comm.all_to_all %x on @dp input_splits [%a, 1] output_splits [9223372036854775807, %a, 1] : (tensor<?xf32>) -> !comm.future<tensor<?xf32>>
  return
}

// -----

func.func @all_to_all_c8_one_list(%x: tensor<4xf32>, %a: index) {
  // expected-error @+1 {{C8: expected output splits that add up to the dimension's size (4), got 5}}
  %f = comm.all_to_all %x on @dp input_splits [%a, 1] output_splits [4, 1] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

// Tests that nothing is added up where a split or the dimension is known at run time only.
comm.group @dp #comm.iota<[1, 2]>
func.func @all_to_all_c8_unknown(%x: tensor<4xf32>, %y: tensor<?xf32>, %a: index) {
  %f = comm.all_to_all %x on @dp input_splits [%a, 9] output_splits [9, %a] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %g = comm.all_to_all %y on @dp input_splits [5, 9] output_splits [9, 7] : (tensor<?xf32>) -> !comm.future<tensor<?xf32>>
  return
}

// -----

func.func @broadcast_c3(%x: tensor<4xf32>) {
  // expected-error @+1 {{C3: expected value #0 to have the shape of its input, 'tensor<4xf32>', got 'tensor<8xf32>'}}
  %f = comm.broadcast %x on @dp root 0 : (tensor<4xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// -----

// expected-note @+1 {{the group has 4 ranks}}
comm.group @dp #comm.iota<[2, 4]>
func.func @broadcast_c7(%x: tensor<4xf32>) {
  // expected-error @+1 {{C7: expected 'root' from 0 to 3, got 4}}
  %f = comm.broadcast %x on @dp root 4 : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

// expected-note @+1 {{the group has 4 ranks}}
comm.group @dp #comm.iota<[2, 4]>
func.func @gather_c3(%x: tensor<4xf32>) {
  // expected-error @+1 {{C3: expected a value of shape 16 from 'tensor<4xf32>' over 4 ranks, got 'tensor<4xf32>'}}
  %f = comm.gather %x on @dp root 0 : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

// expected-note @+1 {{the group has 4 ranks}}
comm.group @dp #comm.iota<[2, 4]>
func.func @gather_c7(%x: tensor<4xf32>) {
  // expected-error @+1 {{C7: expected 'root' from 0 to 3, got -1}}
  %f = comm.gather %x on @dp root -1 : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  return
}

// -----

// expected-note @+1 {{the group has 4 ranks}}
comm.group @dp #comm.iota<[2, 4]>
func.func @scatter_c3(%x: tensor<6xf32>) {
  // expected-error @+1 {{C3: expected dimension 0 of 'tensor<6xf32>' to be a multiple of the group's size (4), got 6}}
  %f = comm.scatter %x on @dp root 0 : (tensor<6xf32>) -> !comm.future<tensor<1xf32>>
  return
}

// -----

// expected-note @+1 {{the group has 4 ranks}}
comm.group @dp #comm.iota<[2, 4]>
func.func @scatter_c7(%x: tensor<8xf32>) {
  // expected-error @+1 {{C7: expected 'root' from 0 to 3, got 9223372036854775807}}
  %f = comm.scatter %x on @dp root 9223372036854775807 : (tensor<8xf32>) -> !comm.future<tensor<2xf32>>
  return
}

// -----

func.func @permute_c7_odd(%x: tensor<8xf32>) {
  // expected-error @+1 {{C7: expected an even number of places in 'pairs', got 3}}
  %f = comm.permute %x on @dp pairs [0, 1, 2] : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// -----

// expected-note @+1 {{the group has 4 ranks}}
comm.group @dp #comm.iota<[2, 4]>
func.func @permute_c7_place(%x: tensor<8xf32>) {
  // expected-error @+1 {{C7: expected 'pairs' from 0 to 3, got 4}}
  %f = comm.permute %x on @dp pairs [0, 4] : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// -----

func.func @permute_c8_source(%x: tensor<8xf32>) {
  // expected-error @+1 {{C8: place 0 appears twice as a source}}
  %f = comm.permute %x on @dp pairs [0, 1, 0, 2] : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// -----

func.func @permute_c8_target(%x: tensor<8xf32>) {
  // expected-error @+1 {{C8: place 2 appears twice as a target}}
  %f = comm.permute %x on @dp pairs [0, 2, 1, 2] : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// -----

func.func @send_c1(%x: tensor<8xf32>) {
  // expected-error @+1 {{C1: expected no destinations and an empty future, got 0 destinations and 1 values}}
  %f = comm.send %x on @dp peer 0 : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// -----

func.func @send_c5(%x: tensor<8xf32>, %y: memref<8xf32>) {
  // expected-error @+1 {{C5: expected only tensors or only memrefs, got both}}
  %f = comm.send %x, %y on @dp peer 0 : (tensor<8xf32>, memref<8xf32>) -> !comm.future<>
  return
}

// -----

// expected-note @+1 {{the group has 4 ranks}}
comm.group @dp #comm.iota<[2, 4]>
func.func @send_c7(%x: tensor<8xf32>) {
  // expected-error @+1 {{C7: expected 'peer' from 0 to 3, got 5}}
  %f = comm.send %x on @dp peer 5 : (tensor<8xf32>) -> !comm.future<>
  return
}

// -----

func.func @send_c7_tag(%x: tensor<8xf32>) {
  // expected-error @+1 {{C7: expected a non-negative 'tag', got -1}}
  %f = comm.send %x on @dp peer 0 tag -1 : (tensor<8xf32>) -> !comm.future<>
  return
}

// -----

func.func @recv_c1_input(%x: tensor<8xf32>) {
  // expected-error @+1 {{C1: expected no inputs and at least one value in the future, got 1 inputs and 1 values}}
  %f = comm.recv %x on @dp peer 0 : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// -----

func.func @recv_c1_nothing() {
  // expected-error @+1 {{C1: expected no inputs and at least one value in the future, got 0 inputs and 0 values}}
  %f = comm.recv on @dp peer 0 : () -> !comm.future<>
  return
}

// -----

func.func @recv_c5() {
  // expected-error @+1 {{C5: expected destinations for a collective on memrefs, got none}}
  %f = comm.recv on @dp peer 0 : () -> !comm.future<memref<8xf32>>
  return
}

// -----

// expected-note @+1 {{the group has 4 ranks}}
comm.group @dp #comm.iota<[2, 4]>
func.func @recv_c7() {
  // expected-error @+1 {{C7: expected 'peer' from 0 to 3, got -2}}
  %f = comm.recv on @dp peer -2 : () -> !comm.future<tensor<8xf32>>
  return
}

// -----

func.func @barrier_c1(%x: tensor<8xf32>) {
  // expected-error @+1 {{C1: expected no inputs, no destinations and an empty future, got 1 inputs, 0 destinations and 0 values}}
  %f = comm.barrier %x on @dp : (tensor<8xf32>) -> !comm.future<>
  return
}

// -----

func.func @barrier_c6() {
  // expected-error @+1 {{C6: expected @dp to name a comm.group}}
  %f = comm.barrier on @dp : () -> !comm.future<>
  return
}

// -----

func.func @wait_c1_types(%f: !comm.future<tensor<8xf32>>) {
  // expected-error @+2 {{failed to infer returned types}}
  // expected-error @+1 {{'comm.wait' op inferred type(s) 'tensor<8xf32>' are incompatible with return type(s) of operation 'tensor<4xf32>'}}
  %w = "comm.wait"(%f) : (!comm.future<tensor<8xf32>>) -> tensor<4xf32>
  return
}

// -----

func.func @wait_c1_count(%f: !comm.future<tensor<8xf32>>) {
  // expected-error @+2 {{failed to infer returned types}}
  // expected-error @+1 {{'comm.wait' op inferred type(s) 'tensor<8xf32>' are incompatible with return type(s) of operation}}
  "comm.wait"(%f) : (!comm.future<tensor<8xf32>>) -> ()
  return
}

// -----

func.func @wait_event(%e: !comm.event) {
  // expected-error @+1 {{C1: expected a future}}
  comm.wait %e : !comm.event
  return
}

// -----

func.func @wait_event_generic(%e: !comm.event) {
  // expected-error @+1 {{operand #0 must be future of a collective's results, but got '!comm.event'}}
  "comm.wait"(%e) : (!comm.event) -> ()
  return
}

// -----

func.func @wait_nothing() {
  // expected-error @+1 {{expected 1 or more operands, but found 0}}
  "comm.wait"() : () -> ()
  return
}

// -----

func.func @wait_keeping_tensor(%f: !comm.future<>, %x: tensor<4xf32>) {
  // expected-error @+1 {{operand #1 must be variadic of memref of any type values, but got 'tensor<4xf32>'}}
  comm.wait %f keeping (%x : tensor<4xf32>) : !comm.future<>
  return
}

// RUN: comm-opt %s -verify-diagnostics --split-input-file

// Tests that uneven splits, roots, peers, pairs, barriers and waits that break a constraint are refused.

func.func @all_to_all_c8_input(%x: tensor<4xf32>) {
  // expected-error @+1 {{C8: the input splits add up to 5, the dimension is 4}}
  %f = comm.all_to_all %x on @dp input_splits [2, 3] output_splits [2, 2] : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

func.func @all_to_all_c8_output(%x: tensor<4xf32>) {
  // expected-error @+1 {{C8: the output splits add up to 4, the dimension is 9}}
  %f = comm.all_to_all %x on @dp input_splits [2, 2] output_splits [2, 2] : (tensor<4xf32>) -> !comm.future<tensor<9xf32>>
  return
}

// -----

func.func @all_to_all_c8_overflow(%x: tensor<?xf32>) {
  // expected-error @+1 {{C8: the input splits add up to more than 2^63}}
  %f = comm.all_to_all %x on @dp input_splits [9223372036854775807, 1] output_splits [2, 2] : (tensor<?xf32>) -> !comm.future<tensor<?xf32>>
  return
}

// -----

func.func @all_to_all_c8_overflow_dynamic(%x: tensor<?xf32>, %a: index) {
  // expected-error @+1 {{C8: the output splits add up to more than 2^63}}
  %f = comm.all_to_all %x on @dp input_splits [%a, 1] output_splits [9223372036854775807, %a, 1] : (tensor<?xf32>) -> !comm.future<tensor<?xf32>>
  return
}

// -----

func.func @all_to_all_c8_one_list(%x: tensor<4xf32>, %a: index) {
  // expected-error @+1 {{C8: the output splits add up to 5, the dimension is 4}}
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
  // expected-error @+1 {{C3: an input of type 'tensor<4xf32>' for a value of type 'tensor<8xf32>'}}
  %f = comm.broadcast %x on @dp root 0 : (tensor<4xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[2, 4]>
func.func @broadcast_c7(%x: tensor<4xf32>) {
  // expected-error @+1 {{C7: 'root' 4 is no place in a group of 4}}
  %f = comm.broadcast %x on @dp root 4 : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[2, 4]>
func.func @gather_c3(%x: tensor<4xf32>) {
  // expected-error @+1 {{C3: an input of type 'tensor<4xf32>' over 4 ranks does not give a value of type 'tensor<4xf32>'}}
  %f = comm.gather %x on @dp root 0 : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[2, 4]>
func.func @gather_c7(%x: tensor<4xf32>) {
  // expected-error @+1 {{C7: 'root' -1 is no place in a group of 4}}
  %f = comm.gather %x on @dp root -1 : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[2, 4]>
func.func @scatter_c3(%x: tensor<6xf32>) {
  // expected-error @+1 {{C3: dimension 0 of 'tensor<6xf32>' does not divide by the 4 ranks of the group}}
  %f = comm.scatter %x on @dp root 0 : (tensor<6xf32>) -> !comm.future<tensor<1xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[2, 4]>
func.func @scatter_c7(%x: tensor<8xf32>) {
  // expected-error @+1 {{C7: 'root' 9223372036854775807 is no place in a group of 4}}
  %f = comm.scatter %x on @dp root 9223372036854775807 : (tensor<8xf32>) -> !comm.future<tensor<2xf32>>
  return
}

// -----

func.func @permute_c7_odd(%x: tensor<8xf32>) {
  // expected-error @+1 {{C7: 'pairs' needs an even number of places}}
  %f = comm.permute %x on @dp pairs [0, 1, 2] : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[2, 4]>
func.func @permute_c7_place(%x: tensor<8xf32>) {
  // expected-error @+1 {{C7: 'pairs' 4 is no place in a group of 4}}
  %f = comm.permute %x on @dp pairs [0, 4] : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// -----

func.func @permute_c8_source(%x: tensor<8xf32>) {
  // expected-error @+1 {{C8: place 0 is twice a source}}
  %f = comm.permute %x on @dp pairs [0, 1, 0, 2] : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// -----

func.func @permute_c8_target(%x: tensor<8xf32>) {
  // expected-error @+1 {{C8: place 2 is twice a target}}
  %f = comm.permute %x on @dp pairs [0, 2, 1, 2] : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// -----

func.func @send_c1(%x: tensor<8xf32>) {
  // expected-error @+1 {{C1: a send has no destinations and an empty future}}
  %f = comm.send %x on @dp peer 0 : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// -----

func.func @send_c5(%x: tensor<8xf32>, %y: memref<8xf32>) {
  // expected-error @+1 {{C5: tensors and memrefs are mixed}}
  %f = comm.send %x, %y on @dp peer 0 : (tensor<8xf32>, memref<8xf32>) -> !comm.future<>
  return
}

// -----

comm.group @dp #comm.iota<[2, 4]>
func.func @send_c7(%x: tensor<8xf32>) {
  // expected-error @+1 {{C7: 'peer' 5 is no place in a group of 4}}
  %f = comm.send %x on @dp peer 5 : (tensor<8xf32>) -> !comm.future<>
  return
}

// -----

func.func @send_c7_tag(%x: tensor<8xf32>) {
  // expected-error @+1 {{C7: 'tag' -1 is negative}}
  %f = comm.send %x on @dp peer 0 tag -1 : (tensor<8xf32>) -> !comm.future<>
  return
}

// -----

func.func @recv_c1_input(%x: tensor<8xf32>) {
  // expected-error @+1 {{C1: a recv has no inputs and at least one value}}
  %f = comm.recv %x on @dp peer 0 : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// -----

func.func @recv_c1_nothing() {
  // expected-error @+1 {{C1: a recv has no inputs and at least one value}}
  %f = comm.recv on @dp peer 0 : () -> !comm.future<>
  return
}

// -----

func.func @recv_c5() {
  // expected-error @+1 {{C5: a collective on memrefs needs destinations}}
  %f = comm.recv on @dp peer 0 : () -> !comm.future<memref<8xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[2, 4]>
func.func @recv_c7() {
  // expected-error @+1 {{C7: 'peer' -2 is no place in a group of 4}}
  %f = comm.recv on @dp peer -2 : () -> !comm.future<tensor<8xf32>>
  return
}

// -----

func.func @barrier_c1(%x: tensor<8xf32>) {
  // expected-error @+1 {{C1: a barrier has no inputs, no destinations and an empty future}}
  %f = comm.barrier %x on @dp : (tensor<8xf32>) -> !comm.future<>
  return
}

// -----

func.func @barrier_c6() {
  // expected-error @+1 {{C6: no comm.group @dp}}
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

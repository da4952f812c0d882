// RUN: comm-opt %s -verify-diagnostics --split-input-file

// Tests that stream anchors and opaque computation that break a constraint are refused. The names say which.

func.func @record_c1() {
  // expected-error @+1 {{attribute 'stream' failed to satisfy constraint: 64-bit signless integer attribute whose value is non-negative whose maximum value is 2147483647}}
  %e = comm.record on -1 : !comm.event
  return
}

// -----

func.func @await_event_c1(%e: !comm.event) {
  // expected-error @+1 {{attribute 'stream' failed to satisfy constraint: 64-bit signless integer attribute whose value is non-negative whose maximum value is 2147483647}}
  comm.await_event %e on -1 : !comm.event
  return
}

// -----

func.func @await_event_future(%f: !comm.future<>) {
  // expected-error @+1 {{operand #0 must be event of a stream, but got '!comm.future<>'}}
  "comm.await_event"(%f) {stream = 0} : (!comm.future<>) -> ()
  return
}

// -----

func.func @compute_c1_count(%x: tensor<8xf32>) {
  // expected-error @+1 {{C1: expected one entry in 'aliases' per result (1), got 2}}
  %0 = comm.compute "view"(%x) aliases [0, 0] : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @compute_c1_range(%x: tensor<8xf32>) {
  // expected-error @+1 {{C1: expected -1 or the number of an operand in 'aliases', got 1}}
  %0 = comm.compute "view"(%x) aliases [1] : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @compute_c1_negative(%x: tensor<8xf32>) {
  // expected-error @+1 {{C1: expected -1 or the number of an operand in 'aliases', got -2}}
  %0 = comm.compute "view"(%x) aliases [-2] : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @compute_c2_range(%x: tensor<8xf32>) {
  // expected-error @+1 {{C2: expected numbers of operands in 'mutates', got 1}}
  comm.compute "zero_"(%x) mutates [1] : (tensor<8xf32>) -> ()
  return
}

// -----

func.func @compute_c2_twice(%x: tensor<8xf32>) {
  // expected-error @+1 {{C2: operand #0 appears twice in 'mutates'}}
  comm.compute "zero_"(%x) mutates [0, 0] : (tensor<8xf32>) -> ()
  return
}

// -----

func.func @compute_c3(%x: tensor<8xf32>) {
  // expected-error @+1 {{C3: expected a name that does not begin with 'comm.' (reserved for the compiler), got 'comm.in_flight'}}
  %y, %z = comm.compute "comm.in_flight"(%x) : (tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
  return
}

// -----

func.func @record_c1_range() {
  // expected-error @+1 {{attribute 'stream' failed to satisfy constraint: 64-bit signless integer attribute whose value is non-negative whose maximum value is 2147483647}}
  %e = comm.record on 2147483648 : !comm.event
  return
}

// RUN: comm-opt %s -verify-diagnostics --split-input-file --allow-unregistered-dialect

// Tests that the dialect's discardable attributes are refused where they do not belong or have the wrong type.

func.func @cost_type() {
  // expected-error @+1 {{expected 'comm.cost' to be a #comm.cost attribute, got 4 : i64}}
  "test.op"() {comm.cost = 4 : i64} : () -> ()
  return
}

// -----

func.func @hybrid_type() {
  // expected-error @+1 {{expected 'comm.hybrid' to be the symbol of a comm.group, got "dp"}}
  "test.op"() {comm.hybrid = "dp"} : () -> ()
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>
func.func @hybrid_start() {
  // expected-error @+1 {{expected 'comm.hybrid' on an operation that is not a start or a wait}}
  %f = comm.barrier on @dp {comm.hybrid = @dp} : () -> !comm.future<>
  return
}

// -----

func.func @unit_type() {
  // expected-error @+1 {{expected 'comm.unit' to be an i64 integer, got unit}}
  "test.op"() {comm.unit} : () -> ()
  return
}

// -----

func.func @after_unit_alone() {
  // expected-error @+1 {{expected 'comm.after_unit' on an operation with 'comm.unit'}}
  "test.op"() {comm.after_unit = 1 : i64} : () -> ()
  return
}

// -----

func.func @pinned_type() {
  // expected-error @+1 {{expected 'comm.pinned' to be a unit attribute, got true}}
  "test.op"() {comm.pinned = true} : () -> ()
  return
}

// -----

func.func @bytes_hint_type() {
  // expected-error @+1 {{expected 'comm.bytes_hint' to be an i64 array with one non-negative size per result, got 4 : i64}}
  %0 = "test.op"() {comm.bytes_hint = 4 : i64} : () -> tensor<?xf32>
  return
}

// -----

func.func @bytes_hint_count() {
  // expected-error @+1 {{expected 'comm.bytes_hint' to be an i64 array with one non-negative size per result, got array<i64: 4, 4>}}
  %0 = "test.op"() {comm.bytes_hint = array<i64: 4, 4>} : () -> tensor<?xf32>
  return
}

// -----

func.func @bytes_hint_negative() {
  // expected-error @+1 {{expected 'comm.bytes_hint' to be an i64 array with one non-negative size per result, got array<i64: -4>}}
  %0 = "test.op"() {comm.bytes_hint = array<i64: -4>} : () -> tensor<?xf32>
  return
}

// -----

func.func @signature_place() {
  // expected-error @+1 {{expected 'comm.schedule_signature' to be a string on a function, got "abc"}}
  "test.op"() {comm.schedule_signature = "abc"} : () -> ()
  return
}

// -----

// expected-error @+1 {{expected 'comm.schedule_signature' to be a string on a function, got 7 : i64}}
func.func @signature_type() attributes {comm.schedule_signature = 7 : i64} {
  return
}

// -----

func.func @donated_place() {
  // expected-error @+1 {{expected 'comm.donated' on an argument of a function, got it on an operation}}
  "test.op"() {comm.donated} : () -> ()
  return
}

// -----

func.func @ready_place() {
  // expected-error @+1 {{expected 'comm.ready_ns' on an argument of a function, got it on an operation}}
  "test.op"() {comm.ready_ns = 5 : i64} : () -> ()
  return
}

// -----

func.func @misspelt() {
  // expected-error @+1 {{'comm.pined' is not an attribute of the comm dialect}}
  "test.op"() {comm.pined} : () -> ()
  return
}

// -----

// expected-error @+1 {{expected 'comm.donated' of argument #1 to be a unit attribute}}
func.func private @donated_type(tensor<4xf32>, tensor<4xf32> {comm.donated = 1 : i64})

// -----

// expected-error @+1 {{expected 'comm.bytes_hint' of argument #0 to be a non-negative i64}}
func.func private @argument_hint_negative(tensor<?xf32> {comm.bytes_hint = -1 : i64})

// -----

// expected-error @+1 {{expected 'comm.bytes_hint' of argument #0 to be a non-negative i64}}
func.func private @argument_hint_type(tensor<?xf32> {comm.bytes_hint = 4 : i32})

// -----

// expected-error @+1 {{expected 'comm.ready_ns' of argument #0 to be a non-negative i64}}
func.func private @ready_negative(!comm.future<tensor<4xf32>> {comm.ready_ns = -1 : i64})

// -----

// expected-error @+1 {{expected 'comm.ready_ns' of argument #0 to be on a future}}
func.func private @ready_tensor(tensor<4xf32> {comm.ready_ns = 1 : i64})

// -----

// expected-error @+1 {{'comm.donatd' of argument #0 is not an argument attribute of the comm dialect}}
func.func private @misspelt_argument(tensor<4xf32> {comm.donatd})

// -----

// expected-error @+1 {{'comm.donated' of result #0 is not a result attribute of the comm dialect}}
func.func private @donated_result() -> (tensor<4xf32> {comm.donated})

// -----

func.func @symmetric_c1(%x: tensor<4xf32>) {
  // expected-error @+1 {{expected 'comm.symmetric' to be an i1 array on a collective, with one entry per input and per value of its future, got array<i1: true>}}
  %f = comm.all_gather %x on @dp {comm.symmetric = array<i1: true>} : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  return
}

// -----

func.func @symmetric_c1_other(%x: tensor<4xf32>) {
  // expected-error @+1 {{expected 'comm.symmetric' to be an i1 array on a collective, with one entry per input and per value of its future, got array<i1: true>}}
  comm.compute "c"(%x) {comm.symmetric = array<i1: true>} : (tensor<4xf32>) -> ()
  return
}

// -----

func.func @split_of_other_length(%x: tensor<4xf32>) {
  // expected-error @+1 {{expected 'comm.split' to be an array of i64 arrays, each with a dimension, or -1, for each operand and each result, got [array<i64: 0>]}}
  %y = comm.compute "c"(%x) {comm.split = [array<i64: 0>]} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @split_out_of_range(%x: tensor<4xf32>) {
  // expected-error @+1 {{expected 'comm.split' to be an array of i64 arrays}}
  %y = comm.compute "c"(%x) {comm.split = [array<i64: 1, 0>]} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @split_of_no_dimension(%x: tensor<4xf32>) {
  // expected-error @+1 {{expected 'comm.split' to be an array of i64 arrays}}
  %y = comm.compute "c"(%x) {comm.split = [array<i64: 0, -2>]} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @rows_out_of_range(%x: tensor<4xf32>) {
  // expected-error @+1 {{expected 'comm.rows' to be an i64 array of the first row and the larger number of all rows, got array<i64: 4, 4>}}
  comm.compute "c"(%x) {comm.rows = array<i64: 4, 4>} : (tensor<4xf32>) -> ()
  return
}

// -----

func.func @no_effects(%x: tensor<4xf32>) {
  // expected-error @+1 {{expected 'comm.no_effects' to be a unit attribute, or an array of names of dialects and operations, got [1]}}
  %y = comm.compute "f"(%x) {comm.no_effects = [1]} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

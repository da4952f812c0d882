// RUN: comm-opt %s --split-input-file --verify-diagnostics | comm-opt --split-input-file | FileCheck %s

comm.group @dp #comm.iota<[1, 4]>

// Tests that comm.stream is kept by printing and parsing, on starts, waits, computations and operations of other
// dialects.
// CHECK-LABEL: func.func @kept
func.func @kept(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: comm.all_reduce {{.*}}comm.stream = 1 : i64
  %f = comm.all_reduce sum %x on @dp {comm.stream = 1 : i64} : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  // CHECK: comm.wait {{.*}}comm.stream = 63 : i64
  %w = comm.wait %f {comm.stream = 63 : i64} : !comm.future<tensor<4xf32>>
  // CHECK: comm.compute {{.*}}comm.stream = 0 : i64
  %a = comm.compute "neg"(%w) {comm.stream = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: linalg.add {comm.stream = 2 : i64}
  %b = linalg.add {comm.stream = 2 : i64} ins(%a, %y : tensor<4xf32>, tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return %b : tensor<4xf32>
}

// -----

func.func @stream_range(%x: tensor<4xf32>) {
  // expected-error @+1 {{expected 'comm.stream' to be an i64 from 0 to 63, got 64 : i64}}
  %a = comm.compute "neg"(%x) {comm.stream = 64 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @stream_negative(%x: tensor<4xf32>) {
  // expected-error @+1 {{expected 'comm.stream' to be an i64 from 0 to 63, got -1 : i64}}
  %a = comm.compute "neg"(%x) {comm.stream = -1 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @stream_type(%x: tensor<4xf32>) {
  // expected-error @+1 {{expected 'comm.stream' to be an i64 from 0 to 63, got 1 : i32}}
  %a = comm.compute "neg"(%x) {comm.stream = 1 : i32} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @stream_terminator(%x: tensor<4xf32>) {
  // expected-error @+1 {{expected 'comm.stream' on an operation that one stream runs, got it on a terminator, a symbol, an anchor, control flow or a call}}
  return {comm.stream = 1 : i64}
}

// -----

func.func @stream_control_flow(%c: i1) {
  // expected-error @+1 {{expected 'comm.stream' on an operation that one stream runs}}
  scf.if %c {
  } {comm.stream = 1 : i64}
  return
}

// -----

func.func private @callee()
func.func @stream_call() {
  // expected-error @+1 {{expected 'comm.stream' on an operation that one stream runs}}
  func.call @callee() {comm.stream = 1 : i64} : () -> ()
  return
}

// -----

// expected-error @+1 {{expected 'comm.stream' on an operation that one stream runs}}
func.func @stream_function() attributes {comm.stream = 1 : i64} {
  return
}

// -----

func.func @stream_anchor() {
  // expected-error @+1 {{expected 'comm.stream' on an operation that one stream runs}}
  %e = comm.record on 1 {comm.stream = 1 : i64} : !comm.event
  return
}

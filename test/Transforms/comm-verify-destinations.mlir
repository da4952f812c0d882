// RUN: comm-opt %s --comm-verify -split-input-file -verify-diagnostics | FileCheck %s

// Tests that each value of one collective has memory of its own.

comm.group @world #comm.iota<[1, 2]>

func.func @cross(%a: memref<8xf32>, %b: memref<8xf32>) {
  // expected-error @below {{writes value #0 where input #1 may be; expected memory of its own for each value}}
  %f = comm.all_reduce sum %a, %b into %b, %a on @world : (memref<8xf32>, memref<8xf32>) -> !comm.future<memref<8xf32>, memref<8xf32>>
  %w:2 = comm.wait %f keeping (%a, %b : memref<8xf32>, memref<8xf32>) : !comm.future<memref<8xf32>, memref<8xf32>>
  return
}

func.func @twice(%a: memref<8xf32>, %b: memref<8xf32>, %c: memref<8xf32>) {
  // expected-error @below {{writes value #1 where value #0 may be}}
  %f = comm.all_reduce sum %a, %b into %c, %c on @world : (memref<8xf32>, memref<8xf32>) -> !comm.future<memref<8xf32>, memref<8xf32>>
  %w:2 = comm.wait %f keeping (%a, %b, %c : memref<8xf32>, memref<8xf32>, memref<8xf32>) : !comm.future<memref<8xf32>, memref<8xf32>>
  return
}

// A place; the argument belongs to the caller.
func.func @place(%x: tensor<8xf32>, %p: tensor<8xf32>) {
  // expected-error @below {{writes value #1 where value #0 may be}}
  %f = comm.all_reduce sum %x, %x into %p, %p on @world : (tensor<8xf32>, tensor<8xf32>) -> !comm.future<tensor<8xf32>, tensor<8xf32>>
  %w:2 = comm.wait %f : !comm.future<tensor<8xf32>, tensor<8xf32>>
  return
}

// -----

// Tests that parts of one buffer that are apart, and values in place, are taken.
comm.group @world #comm.iota<[1, 2]>

// CHECK-LABEL: @apart
func.func @apart(%a: memref<8xf32>, %b: memref<4xf32>) {
  %x = memref.subview %a[0] [4] [1] : memref<8xf32> to memref<4xf32, strided<[1]>>
  %y = memref.subview %a[4] [4] [1] : memref<8xf32> to memref<4xf32, strided<[1], offset: 4>>
  %f = comm.all_reduce sum %b, %y into %x, %y on @world : (memref<4xf32>, memref<4xf32, strided<[1], offset: 4>>) -> !comm.future<memref<4xf32, strided<[1]>>, memref<4xf32, strided<[1], offset: 4>>>
  %w:2 = comm.wait %f keeping (%b, %x, %y : memref<4xf32>, memref<4xf32, strided<[1]>>, memref<4xf32, strided<[1], offset: 4>>) : !comm.future<memref<4xf32, strided<[1]>>, memref<4xf32, strided<[1], offset: 4>>>
  return
}

// Tests that a program on tensors is bufferized, lowered, compiled and run: results that can be checked by hand.

// RUN: comm-run %s --ranks 4 --entry all_reduce --print | FileCheck %s --check-prefix=REDUCE
// RUN: comm-run %s --ranks 4 --entry all_gather --print | FileCheck %s --check-prefix=GATHER
// RUN: comm-run %s --ranks 4 --entry uneven --print | FileCheck %s --check-prefix=UNEVEN
// RUN: comm-run %s --ranks 4 --entry uneven_rows --print | FileCheck %s --check-prefix=ROWS
// RUN: comm-run %s --ranks 4 --entry tags --print | FileCheck %s --check-prefix=TAGS
// RUN: comm-run %s --ranks 4 --entry coalesced --print | FileCheck %s --check-prefix=COALESCED
// RUN: comm-run %s --ranks 4 --entry ring --print | FileCheck %s --check-prefix=RING
// RUN: comm-run %s --ranks 4 --entry loop --print | FileCheck %s --check-prefix=LOOP

comm.group @world #comm.iota<[1, 4]>
comm.group @pairs #comm.ranks<[[0, 1], [2, 3]]>

// REDUCE: rank 0 result 0: [4, 4]
// REDUCE: rank 3 result 0: [4, 4]
func.func @all_reduce() -> tensor<2xf32> {
  %one = arith.constant dense<1.0> : tensor<2xf32>
  %started = comm.all_reduce sum %one on @world : (tensor<2xf32>) -> !comm.future<tensor<2xf32>>
  %sum = comm.wait %started : !comm.future<tensor<2xf32>>
  return %sum : tensor<2xf32>
}

// GATHER: rank 2 result 0: [7, 7, 7, 7, 8, 8, 8, 8]
func.func @all_gather() -> tensor<2x4xi32> {
  %in = arith.constant dense<[[7], [8]]> : tensor<2x1xi32>
  %started = comm.all_gather %in on @world dim 1 : (tensor<2x1xi32>) -> !comm.future<tensor<2x4xi32>>
  %all = comm.wait %started : !comm.future<tensor<2x4xi32>>
  return %all : tensor<2x4xi32>
}

// UNEVEN: rank 1 result 0: [2, 3, 2, 3]
func.func @uneven() -> tensor<4xi64> {
  %in = arith.constant dense<[1, 1, 2, 3]> : tensor<4xi64>
  %started = comm.all_to_all %in on @pairs input_splits [2, 2] output_splits [2, 2]
      : (tensor<4xi64>) -> !comm.future<tensor<4xi64>>
  %out = comm.wait %started : !comm.future<tensor<4xi64>>
  return %out : tensor<4xi64>
}

// Splits along the second of three dimensions.
// ROWS: rank 0 result 0: [1, 2, 1, 2, 5, 6, 5, 6]
// ROWS: rank 1 result 0: [3, 4, 3, 4, 7, 8, 7, 8]
func.func @uneven_rows() -> tensor<2x2x2xi32> {
  %in = arith.constant dense<[[[1, 2], [3, 4]], [[5, 6], [7, 8]]]> : tensor<2x2x2xi32>
  %started = comm.all_to_all %in on @pairs split 1 concat 1 input_splits [1, 1] output_splits [1, 1]
      : (tensor<2x2x2xi32>) -> !comm.future<tensor<2x2x2xi32>>
  %out = comm.wait %started : !comm.future<tensor<2x2x2xi32>>
  return %out : tensor<2x2x2xi32>
}

// Each pair's ranks send to both; what was sent with tag 2 is received first.
// TAGS: rank 0 result 0: [9]
// TAGS: rank 0 result 1: [4]
// TAGS: rank 3 result 0: [9]
// TAGS: rank 3 result 1: [4]
func.func @tags() -> (tensor<1xi32>, tensor<1xi32>) {
  %four = arith.constant dense<4> : tensor<1xi32>
  %nine = arith.constant dense<9> : tensor<1xi32>
  %s0 = comm.send %four on @pairs peer 0 tag 1 : (tensor<1xi32>) -> !comm.future<>
  %s1 = comm.send %four on @pairs peer 1 tag 1 : (tensor<1xi32>) -> !comm.future<>
  %s2 = comm.send %nine on @pairs peer 0 tag 2 : (tensor<1xi32>) -> !comm.future<>
  %s3 = comm.send %nine on @pairs peer 1 tag 2 : (tensor<1xi32>) -> !comm.future<>
  %r0 = comm.recv on @pairs peer 0 tag 2 : () -> !comm.future<tensor<1xi32>>
  %r1 = comm.recv on @pairs peer 1 tag 1 : () -> !comm.future<tensor<1xi32>>
  %r2 = comm.recv on @pairs peer 0 tag 1 : () -> !comm.future<tensor<1xi32>>
  %r3 = comm.recv on @pairs peer 1 tag 2 : () -> !comm.future<tensor<1xi32>>
  %a = comm.wait %r0 : !comm.future<tensor<1xi32>>
  %b = comm.wait %r1 : !comm.future<tensor<1xi32>>
  %c = comm.wait %r2 : !comm.future<tensor<1xi32>>
  %d = comm.wait %r3 : !comm.future<tensor<1xi32>>
  comm.wait %s0 : !comm.future<>
  comm.wait %s1 : !comm.future<>
  comm.wait %s2 : !comm.future<>
  comm.wait %s3 : !comm.future<>
  return %a, %b : tensor<1xi32>, tensor<1xi32>
}

// COALESCED: rank 3 result 0: [8]
// COALESCED: rank 3 result 1: [2, 2]
func.func @coalesced() -> (tensor<1xf64>, tensor<2xbf16>) {
  %a = arith.constant dense<2.0> : tensor<1xf64>
  %b = arith.constant dense<0.5> : tensor<2xbf16>
  %started = comm.all_reduce sum %a, %b on @world
      : (tensor<1xf64>, tensor<2xbf16>) -> !comm.future<tensor<1xf64>, tensor<2xbf16>>
  %sums:2 = comm.wait %started : !comm.future<tensor<1xf64>, tensor<2xbf16>>
  return %sums#0, %sums#1 : tensor<1xf64>, tensor<2xbf16>
}

// RING: rank 0 result 0: [0, 0]
// RING: rank 1 result 0: [5, 5]
func.func @ring() -> tensor<2xi8> {
  %in = arith.constant dense<5> : tensor<2xi8>
  %started = comm.permute %in on @world pairs [0, 1, 1, 2, 2, 3] : (tensor<2xi8>) -> !comm.future<tensor<2xi8>>
  %out = comm.wait %started : !comm.future<tensor<2xi8>>
  return %out : tensor<2xi8>
}

// Each of three iterations doubles on pairs: 1, 2, 4, 8.
// LOOP: rank 2 result 0: [8]
func.func @loop() -> tensor<1xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %three = arith.constant 3 : index
  %first = arith.constant dense<1.0> : tensor<1xf32>
  %last = scf.for %i = %zero to %three step %one iter_args(%x = %first) -> tensor<1xf32> {
    %started = comm.all_reduce sum %x on @pairs : (tensor<1xf32>) -> !comm.future<tensor<1xf32>>
    %sum = comm.wait %started : !comm.future<tensor<1xf32>>
    scf.yield %sum : tensor<1xf32>
  }
  return %last : tensor<1xf32>
}

#!/usr/bin/env python3
#===- rewritable.py - A program with something for every rewrite ------------------------------------------------===#
#
# Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
#
# Prints a program for N ranks: sharded parameters whose rows do not divide by the ranks (the last shard is padded), casts in
# front of gathers, gradients that are padded before they are scattered, small all-reduces, several element types.
#
#   rewritable.py N
#
#===-------------------------------------------------------------------------------------------------------------===#

import sys

N = int(sys.argv[1])
ROWS = 4 * N - 3  # of a parameter; the shards have 4 rows, the last one a single real one
SUM = "comm.reduce_scatter sum"

print(f"""
comm.group @world #comm.iota<[1, {N}]>

func.func @gathers(%a: tensor<4x3xf32>, %b: tensor<4x3xbf16>, %c: tensor<5xf32>, %d: tensor<4xf32>, %e: tensor<3xi8>, %i: tensor<1xi64>)
    -> (tensor<{ROWS}x3xbf16>, tensor<{4*N}x3xbf16>, tensor<{5*N}xbf16>, tensor<{4*N}xf32>, tensor<{3*N}xi8>, tensor<{N}xi64>) {{
  %h = comm.compute "cast"(%a) : (tensor<4x3xf32>) -> tensor<4x3xbf16>
  %f0 = comm.all_gather %h on @world : (tensor<4x3xbf16>) -> !comm.future<tensor<{4*N}x3xbf16>>
  %w0 = comm.wait %f0 : !comm.future<tensor<{4*N}x3xbf16>>
  %p = tensor.extract_slice %w0[0, 0] [{ROWS}, 3] [1, 1] : tensor<{4*N}x3xbf16> to tensor<{ROWS}x3xbf16>
  %r = comm.compute "relu"(%p) : (tensor<{ROWS}x3xbf16>) -> tensor<{ROWS}x3xbf16>
  %f1 = comm.all_gather %b on @world : (tensor<4x3xbf16>) -> !comm.future<tensor<{4*N}x3xbf16>>
  %w1 = comm.wait %f1 : !comm.future<tensor<{4*N}x3xbf16>>
  %g = comm.compute "cast"(%c) : (tensor<5xf32>) -> tensor<5xbf16>
  %f2 = comm.all_gather %g on @world : (tensor<5xbf16>) -> !comm.future<tensor<{5*N}xbf16>>
  %w2 = comm.wait %f2 : !comm.future<tensor<{5*N}xbf16>>
  %f3 = comm.all_gather %d on @world : (tensor<4xf32>) -> !comm.future<tensor<{4*N}xf32>>
  %w3 = comm.wait %f3 : !comm.future<tensor<{4*N}xf32>>
  %f4 = comm.all_gather %e on @world : (tensor<3xi8>) -> !comm.future<tensor<{3*N}xi8>>
  %w4 = comm.wait %f4 : !comm.future<tensor<{3*N}xi8>>
  %f5 = comm.all_gather %i on @world : (tensor<1xi64>) -> !comm.future<tensor<{N}xi64>>
  %w5 = comm.wait %f5 : !comm.future<tensor<{N}xi64>>
  return %r, %w1, %w2, %w3, %w4, %w5 : tensor<{ROWS}x3xbf16>, tensor<{4*N}x3xbf16>, tensor<{5*N}xbf16>, tensor<{4*N}xf32>, tensor<{3*N}xi8>, tensor<{N}xi64>
}}

func.func @reductions(%a: tensor<{ROWS}x3xf32>, %b: tensor<{2*N}x5xf32>, %c: tensor<{N-1}x7xf32>, %d: tensor<3xf32>, %e: tensor<2x2xf32>, %f: tensor<5xbf16>, %g: tensor<1xbf16>)
    -> (tensor<4x3xf32>, tensor<2x5xf32>, tensor<7xf32>, tensor<3xf32>, tensor<2x2xf32>, tensor<5xbf16>, tensor<1xbf16>) {{
  %zeros = arith.constant dense<0.0> : tensor<{4*N}x3xf32>
  %padded = tensor.insert_slice %a into %zeros[0, 0] [{ROWS}, 3] [1, 1] : tensor<{ROWS}x3xf32> into tensor<{4*N}x3xf32>
  %f0 = {SUM} %padded on @world : (tensor<{4*N}x3xf32>) -> !comm.future<tensor<4x3xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<4x3xf32>>
  %f1 = {SUM} %b on @world : (tensor<{2*N}x5xf32>) -> !comm.future<tensor<2x5xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<2x5xf32>>
  %cat = comm.fsdp.chunk_cat %c chunks {N} : (tensor<{N-1}x7xf32>) -> tensor<{7*N}xf32>
  %f2 = {SUM} %cat on @world : (tensor<{7*N}xf32>) -> !comm.future<tensor<7xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<7xf32>>
  %f3 = comm.all_reduce sum %d on @world : (tensor<3xf32>) -> !comm.future<tensor<3xf32>>
  %w3 = comm.wait %f3 : !comm.future<tensor<3xf32>>
  %f4 = comm.all_reduce sum %e on @world : (tensor<2x2xf32>) -> !comm.future<tensor<2x2xf32>>
  %w4 = comm.wait %f4 : !comm.future<tensor<2x2xf32>>
  %f5 = comm.all_reduce avg %f on @world : (tensor<5xbf16>) -> !comm.future<tensor<5xbf16>>
  %w5 = comm.wait %f5 : !comm.future<tensor<5xbf16>>
  %f6 = comm.all_reduce avg %g on @world : (tensor<1xbf16>) -> !comm.future<tensor<1xbf16>>
  %w6 = comm.wait %f6 : !comm.future<tensor<1xbf16>>
  return %w0, %w1, %w2, %w3, %w4, %w5, %w6 : tensor<4x3xf32>, tensor<2x5xf32>, tensor<7xf32>, tensor<3xf32>, tensor<2x2xf32>, tensor<5xbf16>, tensor<1xbf16>
}}

func.func @copy_ins(%a: tensor<2x2xf32>, %b: tensor<3xf32>) -> (tensor<{7*N}xf32>, tensor<{4*N}xbf16>, tensor<{3*N}xbf16>) {{
  %s0, %b0 = comm.fsdp.all_gather_copy_in %a, %b on @world : (tensor<2x2xf32>, tensor<3xf32>) -> (tensor<7xf32>, tensor<{7*N}xf32>)
  %f0 = comm.all_gather %s0 on @world : (tensor<7xf32>) -> !comm.future<tensor<{7*N}xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<{7*N}xf32>>
  %s1, %b1 = comm.fsdp.all_gather_copy_in %a, %b on @world : (tensor<2x2xf32>, tensor<3xf32>) -> (tensor<7xf32>, tensor<{7*N}xf32>)
  %h = comm.compute "cast"(%s1) : (tensor<7xf32>) -> tensor<7xbf16>
  %f1 = comm.all_gather %h on @world : (tensor<7xbf16>) -> !comm.future<tensor<{7*N}xbf16>>
  %w1 = comm.wait %f1 : !comm.future<tensor<{7*N}xbf16>>
  %p:2 = comm.fsdp.split_with_sizes_copy %w1 sizes [4, 3] : (tensor<{7*N}xbf16>) -> (tensor<{4*N}xbf16>, tensor<{3*N}xbf16>)
  return %w0, %p#0, %p#1 : tensor<{7*N}xf32>, tensor<{4*N}xbf16>, tensor<{3*N}xbf16>
}}

func.func @unsharded(%p: tensor<{3*N}xf32>, %s: tensor<3xf32>, %t: tensor<3xf32>) -> (tensor<{3*N}xf32>, tensor<{3*N}xf32>) {{
  %f0 = comm.all_gather %s on @world : (tensor<3xf32>) -> !comm.future<tensor<{3*N}xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<{3*N}xf32>>
  comm.resize_storage %p to {12*N} : tensor<{3*N}xf32>
  comm.fsdp.copy %w0 into %p : tensor<{3*N}xf32> into tensor<{3*N}xf32>
  %r = comm.compute "opaque_forward"(%p) : (tensor<{3*N}xf32>) -> tensor<{3*N}xf32>
  comm.resize_storage %p to 0 : tensor<{3*N}xf32>
  %f1 = comm.all_gather %t on @world : (tensor<3xf32>) -> !comm.future<tensor<{3*N}xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<{3*N}xf32>>
  comm.resize_storage %p to {12*N} : tensor<{3*N}xf32>
  comm.fsdp.copy %w1 into %p : tensor<{3*N}xf32> into tensor<{3*N}xf32>
  %v = comm.compute "view"(%p) aliases [0] : (tensor<{3*N}xf32>) -> tensor<{N}x3xf32>
  %q = comm.compute "opaque_backward"(%v) : (tensor<{N}x3xf32>) -> tensor<{3*N}xf32>
  comm.resize_storage %p to 0 : tensor<{3*N}xf32>
  return %r, %q : tensor<{3*N}xf32>, tensor<{3*N}xf32>
}}
""")

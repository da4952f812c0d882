// RUN: comm-opt %s --comm-bucket="fsdp-only" --remarks-filter=comm-bucket --verify-diagnostics --split-input-file -o /dev/null

// What fsdp-only leaves alone, and why: gathers of no parameter, scatters of no gradient, all-reduces.

comm.group @dp #comm.iota<[1, 4]>
// expected-remark @+1 {{CollectivesAfter=4, CollectivesBefore=5}}
func.func @gathers(%a: tensor<4xf32>, %b: tensor<2x2xf64>, %c: tensor<4xf32>, %d: tensor<4xf32>) -> (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) {
  // expected-remark @+1 {{2 collectives merged into one}}
  %f0 = comm.all_gather %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<16xf32>>
  // A view of a cast of an argument.
  %h = arith.truncf %b : tensor<2x2xf64> to tensor<2x2xf32>
  %v = comm.compute "view"(%h) aliases [0] : (tensor<2x2xf32>) -> tensor<4xf32>
  %f1 = comm.all_gather %v on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<16xf32>>
  // A computation on an argument is no cast of it.
  %n = comm.compute "relu"(%c) : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @+1 {{LimitingFactor="it does not gather an argument of the function"}}
  %f2 = comm.all_gather %n on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<16xf32>>
  // What another collective made is no argument, although a wait passes its operand on.
  %g = comm.all_reduce sum %d on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>> // expected-remark {{LimitingFactor="it is an all-reduce; fsdp-only merges gathers and reduce-scatters"}}
  %x = comm.wait %g : !comm.future<tensor<4xf32>>
  // expected-remark @+1 {{LimitingFactor="it does not gather an argument of the function"}}
  %f3 = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w3 = comm.wait %f3 : !comm.future<tensor<16xf32>>
  return %w0, %w1, %w2, %w3 : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>
}

// -----

comm.group @dp #comm.iota<[1, 4]>
// expected-remark @+1 {{CollectivesAfter=4, CollectivesBefore=5}}
func.func @scatters(%a: tensor<16xf32>, %b: tensor<16xf32>, %c: tensor<16xf32>, %d: tensor<16xf32>, %e: tensor<16xf32>) -> (tensor<4xf32>, tensor<2x2xf64>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  // expected-remark @+1 {{2 collectives merged into one}}
  %f0 = comm.reduce_scatter sum %a on @dp : (tensor<16xf32>) -> !comm.future<tensor<4xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<4xf32>>
  // A view of a cast goes to the outputs.
  %f1 = comm.reduce_scatter sum %b on @dp : (tensor<16xf32>) -> !comm.future<tensor<4xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<4xf32>>
  %h = arith.extf %w1 : tensor<4xf32> to tensor<4xf64>
  %v = comm.compute "view"(%h) aliases [0] : (tensor<4xf64>) -> tensor<2x2xf64>
  // A computation uses it.
  // expected-remark @+1 {{LimitingFactor="its value reaches more than the results of the function"}}
  %f2 = comm.reduce_scatter sum %c on @dp : (tensor<16xf32>) -> !comm.future<tensor<4xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<4xf32>>
  %r = comm.compute "relu"(%w2) : (tensor<4xf32>) -> tensor<4xf32>
  // So does one next to the outputs.
  // expected-remark @+1 {{LimitingFactor="its value reaches more than the results of the function"}}
  %f3 = comm.reduce_scatter sum %d on @dp : (tensor<16xf32>) -> !comm.future<tensor<4xf32>>
  %w3 = comm.wait %f3 : !comm.future<tensor<4xf32>>
  comm.compute "log"(%w3) side_effects : (tensor<4xf32>) -> ()
  // Or a loop, which starts from it.
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  // expected-remark @+1 {{LimitingFactor="its value reaches more than the results of the function"}}
  %f4 = comm.reduce_scatter sum %e on @dp : (tensor<16xf32>) -> !comm.future<tensor<4xf32>>
  %w4 = comm.wait %f4 : !comm.future<tensor<4xf32>>
  %l = scf.for %i = %zero to %one step %one iter_args(%x = %w4) -> tensor<4xf32> {
    scf.yield %x : tensor<4xf32>
  }
  return %w0, %v, %r, %w3, %l : tensor<4xf32>, tensor<2x2xf64>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// What a loop's body yields is no result of the function, wherever the loop's results go.
comm.group @dp #comm.iota<[1, 4]>
func.func @yields(%x: tensor<16xf32>, %y: tensor<16xf32>, %n: index) -> (tensor<4xf32>, tensor<4xf32>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %i0 = tensor.empty() : tensor<4xf32>
  %out:2 = scf.for %i = %zero to %n step %one iter_args(%a = %i0, %b = %i0) -> (tensor<4xf32>, tensor<4xf32>) {
    // expected-remark @+1 {{LimitingFactor="its value reaches more than the results of the function"}}
    %f = comm.reduce_scatter sum %x on @dp : (tensor<16xf32>) -> !comm.future<tensor<4xf32>>
    %r = comm.wait %f : !comm.future<tensor<4xf32>>
    // expected-remark @+1 {{LimitingFactor="its value reaches more than the results of the function"}}
    %g = comm.reduce_scatter sum %y on @dp : (tensor<16xf32>) -> !comm.future<tensor<4xf32>>
    %s = comm.wait %g : !comm.future<tensor<4xf32>>
    scf.yield %r, %s : tensor<4xf32>, tensor<4xf32>
  }
  return %out#0, %out#1 : tensor<4xf32>, tensor<4xf32>
}

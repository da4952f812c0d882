// RUN: comm-opt %s --split-input-file --comm-realize-buffers -o %t.realized.mlir
// RUN: comm-opt %s --split-input-file --comm-raise -o %t.raised.mlir
// RUN: comm-opt %s --split-input-file --comm-schedule=memory-budget-ratio=1.0 -o %t.scheduled.mlir
// RUN: comm-opt %s --split-input-file --comm-reorder-compute-for-overlap -o %t.computes.mlir
// RUN: comm-opt %s --split-input-file --comm-remove-unsharded-param-usage -o %t.read.mlir
// RUN: comm-run --split-input-file %s --ranks 2 --compare %t.realized.mlir --compare %t.raised.mlir --compare %t.scheduled.mlir --compare %t.computes.mlir --compare %t.read.mlir

// Tests that a sum does not write its input in place if the input, the result of a branch, is the storage of an argument.
comm.group @world #comm.iota<[1, 2]>
func.func @main(%x: tensor<4xi64>, %which: i1) -> tensor<4xi64> {
  %same = scf.if %which -> (tensor<4xi64>) {
    scf.yield %x : tensor<4xi64>
  } else {
    scf.yield %x : tensor<4xi64>
  }
  %f = comm.all_reduce max %same on @world : (tensor<4xi64>) -> !comm.future<tensor<4xi64>>
  %w = comm.wait %f : !comm.future<tensor<4xi64>>
  return %x : tensor<4xi64>
}

// -----

// Tests that a gather keeps its order with a write of what it reads, through the result of a region that runs once.
comm.group @world #comm.iota<[1, 2]>
func.func @main(%x: tensor<32xi64>, %y: tensor<32xi64>) -> tensor<64xi64> {
  %slow = comm.compute "neg"(%y) {comm.cost = #comm.cost<time = 400000>} : (tensor<32xi64>) -> tensor<32xi64>
  %same = scf.execute_region -> tensor<32xi64> {
    scf.yield %x : tensor<32xi64>
  }
  comm.compute "add"(%same, %slow, %same) mutates [2] {comm.cost = #comm.cost<time = 400000>, outputs = 1 : i64} : (tensor<32xi64>, tensor<32xi64>, tensor<32xi64>) -> ()
  %f = comm.all_gather %x on @world {comm.cost = #comm.cost<time = 400000>} : (tensor<32xi64>) -> !comm.future<tensor<64xi64>>
  %w = comm.wait %f : !comm.future<tensor<64xi64>>
  return %w : tensor<64xi64>
}

// -----

// Tests the same through one of several branches, of which another one makes new storage.
comm.group @world #comm.iota<[1, 2]>
func.func @main(%x: tensor<32xi64>, %y: tensor<32xi64>) -> tensor<64xi64> {
  %one = arith.constant 1 : index
  %slow = comm.compute "neg"(%y) {comm.cost = #comm.cost<time = 400000>} : (tensor<32xi64>) -> tensor<32xi64>
  %same = scf.index_switch %one -> tensor<32xi64>
  case 1 {
    scf.yield %x : tensor<32xi64>
  }
  default {
    %new = comm.compute "neg"(%y) : (tensor<32xi64>) -> tensor<32xi64>
    scf.yield %new : tensor<32xi64>
  }
  comm.compute "add"(%same, %slow, %same) mutates [2] {comm.cost = #comm.cost<time = 400000>, outputs = 1 : i64} : (tensor<32xi64>, tensor<32xi64>, tensor<32xi64>) -> ()
  %f = comm.all_gather %x on @world {comm.cost = #comm.cost<time = 400000>} : (tensor<32xi64>) -> !comm.future<tensor<64xi64>>
  %w = comm.wait %f : !comm.future<tensor<64xi64>>
  return %w : tensor<64xi64>
}

// -----

// Tests the same through a function that returns its argument.
comm.group @world #comm.iota<[1, 2]>
func.func private @pass(%x: tensor<32xi64>) -> tensor<32xi64> {
  return %x : tensor<32xi64>
}
func.func @main(%x: tensor<32xi64>, %y: tensor<32xi64>) -> tensor<64xi64> {
  %slow = comm.compute "neg"(%y) {comm.cost = #comm.cost<time = 400000>} : (tensor<32xi64>) -> tensor<32xi64>
  %same = func.call @pass(%x) : (tensor<32xi64>) -> tensor<32xi64>
  comm.compute "add"(%same, %slow, %same) mutates [2] {comm.cost = #comm.cost<time = 400000>, outputs = 1 : i64} : (tensor<32xi64>, tensor<32xi64>, tensor<32xi64>) -> ()
  %f = comm.all_gather %x on @world {comm.cost = #comm.cost<time = 400000>} : (tensor<32xi64>) -> !comm.future<tensor<64xi64>>
  %w = comm.wait %f : !comm.future<tensor<64xi64>>
  return %w : tensor<64xi64>
}

// -----

// Tests that a parameter is not replaced by the gathered value if the value changes while the parameter is used.
comm.group @world #comm.iota<[1, 2]>
func.func @main(%shard: tensor<16xf32>, %param: tensor<32xf32>, %which: i1) -> tensor<32xf32> {
  %f = comm.all_gather %shard on @world : (tensor<16xf32>) -> !comm.future<tensor<32xf32>>
  %full = comm.wait %f : !comm.future<tensor<32xf32>>
  comm.resize_storage %param to 128 : tensor<32xf32>
  comm.fsdp.copy %full into %param : tensor<32xf32> into tensor<32xf32>
  %same = scf.if %which -> tensor<32xf32> {
    scf.yield %full : tensor<32xf32>
  } else {
    scf.yield %full : tensor<32xf32>
  }
  comm.compute "add"(%same, %same, %same) mutates [2] {outputs = 1 : i64} : (tensor<32xf32>, tensor<32xf32>, tensor<32xf32>) -> ()
  %used = comm.compute "neg"(%param) : (tensor<32xf32>) -> tensor<32xf32>
  comm.resize_storage %param to 0 : tensor<32xf32>
  return %used : tensor<32xf32>
}

// RUN: comm-opt %s | FileCheck %s
// RUN: comm-opt %s --emit-bytecode | comm-opt | FileCheck %s

// Tests that groups of very many ranks are one line, and that collectives over them are checked.

// CHECK: comm.group @all #comm.iota<[1, 100000]>
comm.group @all #comm.iota<[1, 100000]>
// CHECK: comm.group @rows #comm.iota<[1000, 100]>
comm.group @rows #comm.iota<[1000, 100] from [1000, 100] transpose [0, 1]>
// CHECK: comm.group @columns #comm.iota<[100, 1000] from [1000, 100] transpose [1, 0]>
comm.group @columns #comm.iota<[100, 1000] from [1000, 100] transpose [1, 0]>
// CHECK: comm.group @cube #comm.iota<[1000000, 1000] from [1000, 1000, 1000] transpose [2, 0, 1]>
comm.group @cube #comm.iota<[1000000, 1000] from [1000, 1000, 1000] transpose [2, 0, 1]>

// CHECK: comm.broadcast %{{.*}} on @all root 99999
func.func @f(%x: tensor<4xf32>, %d: tensor<?xf32>) {
  %f = comm.broadcast %x on @all root 99999 : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  // CHECK: (tensor<4xf32>) -> !comm.future<tensor<400000xf32>>
  %g = comm.all_gather %x on @all : (tensor<4xf32>) -> !comm.future<tensor<400000xf32>>
  // CHECK: (tensor<?xf32>) -> !comm.future<tensor<400000xf32>>
  %h = comm.all_gather %d on @all : (tensor<?xf32>) -> !comm.future<tensor<400000xf32>>
  // CHECK: (tensor<?xf32>) -> !comm.future<tensor<?xf32>>
  %i = comm.reduce_scatter sum %d on @all : (tensor<?xf32>) -> !comm.future<tensor<?xf32>>
  return
}

// Tests that passes may make one value of the destinations of several collectives in flight: each result has its own
// storage. A result may be mutated although another collective has been given the same destination.

// RUN: comm-opt %s --cse -o %t.cse.mlir
// RUN: FileCheck %s --input-file=%t.cse.mlir --check-prefix=ONE
// RUN: comm-opt %t.cse.mlir --comm-schedule -o %t.schedule.mlir
// RUN: comm-opt %t.cse.mlir --comm-bufferize --comm-plan-buffers --comm-sink-waits -o %t.buffers.mlir
// RUN: comm-run %s --ranks 2 --compare %t.cse.mlir --compare %t.schedule.mlir --compare %t.buffers.mlir | FileCheck %s
// CHECK: equal, bit for bit, on 2 ranks

comm.group @all #comm.iota<[1, 2]>

// ONE-LABEL: @main
// ONE: %[[FOUR:.*]] = tensor.empty() : tensor<4xf32>
// ONE: comm.all_reduce sum {{.*}} into %[[FOUR]]
// ONE: comm.all_reduce max {{.*}} into %[[FOUR]]
// ONE: comm.all_reduce min {{.*}} into %[[FOUR]]
// ONE: comm.fsdp.all_gather_copy_in {{.*}} into %[[MANY:[0-9]+]]
// ONE: comm.fsdp.all_gather_copy_in {{.*}} into %[[MANY]]
func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<16xf32>, tensor<16xf32>) {
  %e0 = tensor.empty() : tensor<4xf32>
  %e1 = tensor.empty() : tensor<4xf32>
  %e2 = tensor.empty() : tensor<4xf32>
  %f0 = comm.all_reduce sum %a into %e0 on @all : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %f1 = comm.all_reduce max %b into %e1 on @all : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<4xf32>>
  %f2 = comm.all_reduce min %w0 into %e2 on @all : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<4xf32>>
  comm.compute "change"(%w1, %a) mutates [0] : (tensor<4xf32>, tensor<4xf32>) -> ()
  %w2 = comm.wait %f2 : !comm.future<tensor<4xf32>>
  %changed = comm.compute "copy"(%w1) : (tensor<4xf32>) -> tensor<4xf32>
  comm.compute "change"(%w1, %b) mutates [0] : (tensor<4xf32>, tensor<4xf32>) -> ()
  %e3 = tensor.empty() : tensor<16xf32>
  %e4 = tensor.empty() : tensor<16xf32>
  %s3, %p3 = comm.fsdp.all_gather_copy_in %a, %b into %e3 : tensor<16xf32> on @all : (tensor<4xf32>, tensor<4xf32>) -> (tensor<8xf32>, tensor<16xf32>)
  %f3 = comm.all_gather %s3 into %p3 on @all : (tensor<8xf32>) -> !comm.future<tensor<16xf32>>
  %s4, %p4 = comm.fsdp.all_gather_copy_in %b, %w0 into %e4 : tensor<16xf32> on @all : (tensor<4xf32>, tensor<4xf32>) -> (tensor<8xf32>, tensor<16xf32>)
  %f4 = comm.all_gather %s4 into %p4 on @all : (tensor<8xf32>) -> !comm.future<tensor<16xf32>>
  %w3 = comm.wait %f3 : !comm.future<tensor<16xf32>>
  %w4 = comm.wait %f4 : !comm.future<tensor<16xf32>>
  return %w0, %w1, %w2, %changed, %w3, %w4 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<16xf32>, tensor<16xf32>
}

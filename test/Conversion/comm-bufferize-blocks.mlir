// RUN: comm-opt %s --comm-bufferize --split-input-file | FileCheck %s

// Tests that a branch passes on a copy of a tensor if one basic block writes the argument, and another one reads the tensor
// after that.
// CHECK-LABEL: func @read_behind_a_branch
func.func @read_behind_a_branch(%c: i1, %a: tensor<4xi64>, %b: tensor<4xi64>) -> tensor<4xi64> {
  cf.cond_br %c, ^bb1, ^bb2
^bb1:
  cf.br ^bb3(%a : tensor<4xi64>)
^bb2:
  cf.br ^bb3(%b : tensor<4xi64>)
// CHECK: ^bb3(%[[READ:.*]]: memref<4xi64>):
^bb3(%v: tensor<4xi64>):
  cf.cond_br %c, ^bb4, ^bb5
// CHECK: ^bb4:
// CHECK: memref.copy %[[READ]], %[[COPY:.*]] :
// CHECK-NEXT: cf.br ^bb6(%[[COPY]] : memref<4xi64>)
^bb4:
  cf.br ^bb6(%v : tensor<4xi64>)
^bb5:
  cf.br ^bb6(%a : tensor<4xi64>)
// CHECK: ^bb6(%[[ARGUMENT:.*]]: memref<4xi64>):
^bb6(%i: tensor<4xi64>):
  cf.cond_br %c, ^bb7, ^bb8
^bb7:
  // CHECK: linalg.mul ins(%[[ARGUMENT]], %[[ARGUMENT]] : {{.*}}) outs(%[[ARGUMENT]] : memref<4xi64>)
  %m = linalg.mul ins(%i, %i : tensor<4xi64>, tensor<4xi64>) outs(%i : tensor<4xi64>) -> tensor<4xi64>
  cf.br ^bb8
^bb8:
  // CHECK: return %[[READ]]
  return %v : tensor<4xi64>
}

// -----

// Tests the same of an argument of a private function, which its callers let it write.
// CHECK-LABEL: func private @read_in_another_block
func.func private @read_in_another_block(%c: i1, %v: tensor<4xi64>) -> tensor<4xi64> {
  cf.cond_br %c, ^bb1, ^bb2
^bb1:
  // CHECK: %[[OWN:.*]] = memref.alloc()
  // CHECK: linalg.mul ins(%arg1, %arg1 : {{.*}}) outs(%[[OWN]] : memref<4xi64>)
  %m = linalg.mul ins(%v, %v : tensor<4xi64>, tensor<4xi64>) outs(%v : tensor<4xi64>) -> tensor<4xi64>
  cf.br ^bb2
^bb2:
  %r = linalg.add ins(%v, %v : tensor<4xi64>, tensor<4xi64>) outs(%v : tensor<4xi64>) -> tensor<4xi64>
  return %r : tensor<4xi64>
}

func.func @caller(%c: i1, %a: tensor<4xi64>) -> tensor<4xi64> {
  %own = comm.compute "copy"(%a) : (tensor<4xi64>) -> tensor<4xi64>
  %r = func.call @read_in_another_block(%c, %own) : (i1, tensor<4xi64>) -> tensor<4xi64>
  return %r : tensor<4xi64>
}

// -----

// Tests that a write in another basic block is in place if nobody reads the argument later.
// CHECK-LABEL: func @last_access
func.func @last_access(%c: i1, %x: tensor<4xi64>) -> tensor<4xi64> {
  %a = comm.compute "copy"(%x) : (tensor<4xi64>) -> tensor<4xi64>
  // CHECK: cf.br ^bb1(%[[BUFFER:.*]] : memref<4xi64>)
  cf.br ^bb1(%a : tensor<4xi64>)
// CHECK: ^bb1(%[[ARGUMENT:.*]]: memref<4xi64>):
^bb1(%v: tensor<4xi64>):
  cf.br ^bb2
^bb2:
  // CHECK-NOT: memref.alloc
  // CHECK: linalg.mul {{.*}} outs(%[[ARGUMENT]] : memref<4xi64>)
  // CHECK-NEXT: return %[[ARGUMENT]]
  %m = linalg.mul ins(%v, %v : tensor<4xi64>, tensor<4xi64>) outs(%v : tensor<4xi64>) -> tensor<4xi64>
  return %m : tensor<4xi64>
}

// -----

// Tests that a branch passes on a part of a buffer as it is.
// CHECK-LABEL: func @part
func.func @part(%x: tensor<4x4xi64>, %y: tensor<4x2xi64>) -> tensor<4x2xi64> {
  // CHECK: %[[PART:.*]] = memref.subview
  %part = tensor.extract_slice %x[0, 1] [4, 2] [1, 1] : tensor<4x4xi64> to tensor<4x2xi64>
  cf.br ^bb1(%part : tensor<4x2xi64>)
// CHECK: ^bb1(%[[ARGUMENT:.*]]: memref<4x2xi64, strided<[4, 1], offset: 1>>):
^bb1(%v: tensor<4x2xi64>):
  cf.br ^bb2
^bb2:
  %e = tensor.empty() : tensor<4x2xi64>
  // CHECK: linalg.add ins(%[[ARGUMENT]], %{{.*}} : memref<4x2xi64, strided<[4, 1], offset: 1>>, memref<4x2xi64>)
  %m = linalg.add ins(%v, %y : tensor<4x2xi64>, tensor<4x2xi64>) outs(%e : tensor<4x2xi64>) -> tensor<4x2xi64>
  return %m : tensor<4x2xi64>
}

// -----

// Tests that the edges of a switch pass on their own buffers, and that what one of them passes on is not written in place
// while it is in flight.
comm.group @g #comm.ranks<[[0, 1]]>

// CHECK-LABEL: func @edges_of_a_switch
func.func @edges_of_a_switch(%k: i32, %x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: comm.compute "copy"(%arg1, %[[COPY:.*]]) mutates [1]
  %c = comm.compute "copy"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: cf.switch %arg0 : i32, [
  // CHECK-NEXT: default: ^bb1,
  // CHECK-NEXT: 0: ^bb2
  cf.switch %k : i32, [
    default: ^bb1(%c : tensor<4xf32>),
    0: ^bb1(%x : tensor<4xf32>)
  ]
// CHECK: ^bb3(%[[ARGUMENT:.*]]: memref<4xf32>):
^bb1(%v: tensor<4xf32>):
  // CHECK: comm.all_reduce sum %[[ARGUMENT]]
  %f = comm.all_reduce sum %v on @g : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  // CHECK-NOT: outs(%[[COPY]] :
  %m = linalg.mul ins(%v, %v : tensor<4xf32>, tensor<4xf32>) outs(%c : tensor<4xf32>) -> tensor<4xf32>
  // CHECK: comm.wait
  %w = comm.wait %f : !comm.future<tensor<4xf32>>
  %s = linalg.add ins(%w, %m : tensor<4xf32>, tensor<4xf32>) outs(%m : tensor<4xf32>) -> tensor<4xf32>
  return %s : tensor<4xf32>
}

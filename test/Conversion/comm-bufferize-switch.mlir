// RUN: comm-opt %s --comm-bufferize --split-input-file | FileCheck %s

// Tests that the result of a switch is what a case yields: a write of it leaves the caller's tensor as it was.
// CHECK-LABEL: func @result_is_written
// CHECK-SAME: (%[[X:.*]]: memref<4xi32>, %[[C:.*]]: index)
func.func @result_is_written(%x: tensor<4xi32>, %c: index) -> tensor<4xi32> {
  // CHECK: %[[I:.*]] = scf.if
  %i = scf.index_switch %c -> tensor<4xi32>
  case 0 {
    scf.yield %x : tensor<4xi32>
  }
  case 3 {
    scf.yield %x : tensor<4xi32>
  }
  default {
    scf.yield %x : tensor<4xi32>
  }
  // CHECK: %[[NEW:.*]] = memref.alloc
  // CHECK: linalg.mul ins(%[[X]], %[[I]] : {{.*}}) outs(%[[NEW]] :
  %v = linalg.mul ins(%x, %i : tensor<4xi32>, tensor<4xi32>) outs(%i : tensor<4xi32>) -> tensor<4xi32>
  return %v : tensor<4xi32>
}

// -----

// Tests that a tensor that a case yields is not written while the result of the switch is needed.
// CHECK-LABEL: func @yielded_is_written
func.func @yielded_is_written(%x: tensor<4xi32>, %c: index) -> tensor<4xi32> {
  %e = tensor.empty() : tensor<4xi32>
  // CHECK: linalg.mul {{.*}} outs(%[[OWN:.*]] :
  %own = linalg.mul ins(%x, %x : tensor<4xi32>, tensor<4xi32>) outs(%e : tensor<4xi32>) -> tensor<4xi32>
  // CHECK: %[[I:.*]] = scf.if
  %i = scf.index_switch %c -> tensor<4xi32>
  case 0 {
    scf.yield %own : tensor<4xi32>
  }
  default {
    scf.yield %x : tensor<4xi32>
  }
  // CHECK-NOT: outs(%[[OWN]] :
  // CHECK: return
  %v = linalg.add ins(%x, %x : tensor<4xi32>, tensor<4xi32>) outs(%own : tensor<4xi32>) -> tensor<4xi32>
  %w = linalg.add ins(%v, %i : tensor<4xi32>, tensor<4xi32>) outs(%v : tensor<4xi32>) -> tensor<4xi32>
  return %w : tensor<4xi32>
}

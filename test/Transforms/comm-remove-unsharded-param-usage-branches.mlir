// RUN: comm-opt %s --comm-remove-unsharded-param-usage --remarks-filter=comm-remove-unsharded-param-usage --verify-diagnostics | FileCheck %s

// Tests storage that is larger than the parameter: uneven sharding pads it. (Smaller is no full storage.)
// CHECK-LABEL: func @padded
// CHECK-SAME: (%[[P:.*]]: tensor<3xf32>, %[[Y:.*]]: tensor<3xf32>)
// CHECK-NEXT: compute "use"(%[[Y]])
// CHECK-NEXT: return
func.func @padded(%p: tensor<3xf32>, %y: tensor<3xf32>) {
  comm.resize_storage %p to 16 : tensor<3xf32>
  // expected-remark @+1 {{Remark="argument #0: its uses read the copied value"}}
  comm.fsdp.copy %y into %p : tensor<3xf32> into tensor<3xf32>
  comm.compute "use"(%p) side_effects : (tensor<3xf32>) -> ()
  comm.resize_storage %p to 0 : tensor<3xf32>
  return
}

// Tests copies without resizes: uses read what was copied last, what came before reads the parameter, and the last copy
// stays, since the caller finds it in the parameter.
// CHECK-LABEL: func @without_resize
// CHECK-SAME: (%[[P:.*]]: tensor<4xf32>, %[[Y0:.*]]: tensor<4xf32>, %[[Y1:.*]]: tensor<4xf32>)
// CHECK-NEXT: compute "before"(%[[P]])
// CHECK-NEXT: compute "use"(%[[Y0]])
// CHECK-NEXT: comm.fsdp.copy %[[Y1]] into %[[P]]
// CHECK-NEXT: compute "use"(%[[Y1]])
// CHECK-NEXT: return %[[P]]
func.func @without_resize(%p: tensor<4xf32>, %y0: tensor<4xf32>, %y1: tensor<4xf32>) -> tensor<4xf32> {
  comm.compute "before"(%p) side_effects : (tensor<4xf32>) -> ()
  // expected-remark @+1 {{Remark="argument #0: its uses read the copied value"}}
  comm.fsdp.copy %y0 into %p : tensor<4xf32> into tensor<4xf32>
  comm.compute "use"(%p) side_effects : (tensor<4xf32>) -> ()
  comm.fsdp.copy %y1 into %p : tensor<4xf32> into tensor<4xf32>
  comm.compute "use"(%p) side_effects : (tensor<4xf32>) -> ()
  return %p : tensor<4xf32>
}

// Tests that without resizes too a write, a view of older contents, and a source that changes stand in the way.
// CHECK-LABEL: func @not_without_resize
// CHECK-COUNT-4: comm.fsdp.copy
func.func @not_without_resize(%p: tensor<4xf32>, %q: tensor<4xf32>, %r: tensor<4xf32>, %s: tensor<4xf32>, %y: tensor<4xf32>) {
  comm.fsdp.copy %y into %p : tensor<4xf32> into tensor<4xf32>
  // expected-remark @+1 {{LimitingFactor="argument #0: the operation writes the parameter"}}
  comm.compute "add_"(%p) mutates [0] : (tensor<4xf32>) -> ()
  %v = comm.compute "view"(%q) aliases [0] : (tensor<4xf32>) -> tensor<4xf32>
  comm.fsdp.copy %y into %q : tensor<4xf32> into tensor<4xf32>
  // expected-remark @+1 {{LimitingFactor="argument #1: the operation uses a view of what the parameter held before"}}
  comm.compute "use"(%v) side_effects : (tensor<4xf32>) -> ()
  // expected-remark @+1 {{Remark="argument #2: its uses read the copied value"}}
  comm.fsdp.copy %y into %r : tensor<4xf32> into tensor<4xf32>
  // expected-remark @+1 {{LimitingFactor="argument #3: what is copied is a parameter that is copied into too"}}
  comm.fsdp.copy %r into %s : tensor<4xf32> into tensor<4xf32>
  comm.fsdp.copy %y into %r : tensor<4xf32> into tensor<4xf32>
  comm.compute "use"(%s) side_effects : (tensor<4xf32>) -> ()
  return
}

// Tests a branch that returns the parameter or a tensor that is written. A sum that anybody may merge with another cannot take the place of the parameter.
// CHECK-LABEL: func @joined
// CHECK: comm.fsdp.copy %{{.*}} into %[[P:arg[0-9]+]]
// CHECK: scf.yield %[[P]]
func.func @joined(%p: tensor<4xf32>, %q: tensor<4xf32>, %c: i1) {
  %y = arith.addf %q, %q : tensor<4xf32>
  comm.fsdp.copy %y into %p : tensor<4xf32> into tensor<4xf32>
  %r = scf.if %c -> tensor<4xf32> {
    // expected-remark @+1 {{LimitingFactor="argument #0: the operation gives the parameter or another tensor to the same result"}}
    scf.yield %p : tensor<4xf32>
  } else {
    scf.yield %q : tensor<4xf32>
  }
  comm.compute "use"(%r) side_effects : (tensor<4xf32>) -> ()
  comm.fsdp.copy %q into %q : tensor<4xf32> into tensor<4xf32>
  return
}

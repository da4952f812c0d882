// RUN: comm-opt %s --comm-remove-unsharded-param-usage --remarks-filter=comm-remove-unsharded-param-usage --verify-diagnostics | FileCheck %s

// Tests that uses of a parameter read what was copied into it, and that the copies and resizes go.
// CHECK-LABEL: func @pattern
// CHECK-SAME: (%[[P:.*]]: tensor<4xf32>, %[[Y:.*]]: tensor<4xf32>)
func.func @pattern(%p: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK-NOT: comm.resize_storage
  comm.resize_storage %p to 16 : tensor<4xf32>
  // CHECK-NOT: comm.fsdp.copy
  // expected-remark @+1 {{Bytes=16, Kind=comm.fsdp.copy, LimitingFactor=none, Remark="argument #0: its uses read the copied value"}}
  comm.fsdp.copy %y into %p : tensor<4xf32> into tensor<4xf32>
  // CHECK: comm.compute "use"(%[[Y]])
  %0 = comm.compute "use"(%p) : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: %[[V:.*]] = comm.compute "view"(%[[Y]])
  %v = comm.compute "view"(%p) aliases [0] : (tensor<4xf32>) -> tensor<2x2xf32>
  // CHECK: comm.compute "use"(%[[V]])
  %1 = comm.compute "use"(%v) : (tensor<2x2xf32>) -> tensor<4xf32>
  // CHECK-NOT: comm.resize_storage
  comm.resize_storage %p to 0 : tensor<4xf32>
  %2 = comm.compute "add"(%0, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

// Tests that each use reads the last copy before it: the storage is filled twice, and once without a resize in between.
// CHECK-LABEL: func @repeated
// CHECK-SAME: (%[[P:.*]]: tensor<4xf32>, %[[Y0:.*]]: tensor<4xf32>, %[[Y1:.*]]: tensor<4xf32>, %[[Y2:.*]]: tensor<4xf32>, %[[C:.*]]: i1)
func.func @repeated(%p: tensor<4xf32>, %y0: tensor<4xf32>, %y1: tensor<4xf32>, %y2: tensor<4xf32>, %c: i1) {
  // CHECK-NOT: comm.resize_storage
  // CHECK-NOT: comm.fsdp.copy
  comm.resize_storage %p to 16 : tensor<4xf32>
  // expected-remark @+1 {{Bytes=48, Kind=comm.fsdp.copy, LimitingFactor=none, Remark="argument #0: its uses read the copied value"}}
  comm.fsdp.copy %y0 into %p : tensor<4xf32> into tensor<4xf32>
  // CHECK: "use"(%[[Y0]])
  comm.compute "use"(%p) side_effects : (tensor<4xf32>) -> ()
  comm.fsdp.copy %y1 into %p : tensor<4xf32> into tensor<4xf32>
  scf.if %c {
    // CHECK: "use"(%[[Y1]])
    comm.compute "use"(%p) side_effects : (tensor<4xf32>) -> ()
  }
  comm.resize_storage %p to 0 : tensor<4xf32>
  comm.resize_storage %p to 16 : tensor<4xf32>
  comm.fsdp.copy %y2 into %p : tensor<4xf32> into tensor<4xf32>
  // CHECK: "use"(%[[Y2]])
  comm.compute "use"(%p) side_effects : (tensor<4xf32>) -> ()
  comm.resize_storage %p to 0 : tensor<4xf32>
  return
}

// Tests that parameters are decided on one by one: the second stays.
// CHECK-LABEL: func @one_by_one
// CHECK-SAME: (%[[P:.*]]: tensor<4xf32>, %[[Q:.*]]: tensor<4xf32>, %[[Y:.*]]: tensor<4xf32>)
func.func @one_by_one(%p: tensor<4xf32>, %q: tensor<4xf32>, %y: tensor<4xf32>) {
  // CHECK: comm.resize_storage %[[Q]] to 16
  comm.resize_storage %p to 16 : tensor<4xf32>
  // expected-remark @+1 {{LimitingFactor="argument #1: nothing takes the storage away again"}}
  comm.resize_storage %q to 16 : tensor<4xf32>
  // expected-remark @+1 {{Remark="argument #0}}
  comm.fsdp.copy %y into %p : tensor<4xf32> into tensor<4xf32>
  // CHECK: comm.fsdp.copy %[[Y]] into %[[Q]]
  comm.fsdp.copy %y into %q : tensor<4xf32> into tensor<4xf32>
  // CHECK: "use"(%[[Y]], %[[Q]])
  comm.compute "use"(%p, %q) side_effects : (tensor<4xf32>, tensor<4xf32>) -> ()
  comm.resize_storage %p to 0 : tensor<4xf32>
  return
}

// CHECK-LABEL: func @foreign_mutation
func.func @foreign_mutation(%p: tensor<4xf32>, %y: tensor<4xf32>) {
  // CHECK: comm.resize_storage
  comm.resize_storage %p to 16 : tensor<4xf32>
  comm.fsdp.copy %y into %p : tensor<4xf32> into tensor<4xf32>
  %v = comm.compute "view"(%p) aliases [0] : (tensor<4xf32>) -> tensor<2x2xf32>
  // expected-warning @+2 {{writes argument #0, an unsharded parameter into which gathered values are copied}}
  // expected-remark @+1 {{LimitingFactor="argument #0: the operation writes the parameter"}}
  comm.compute "add_"(%v) mutates [0] : (tensor<2x2xf32>) -> ()
  comm.resize_storage %p to 0 : tensor<4xf32>
  return
}

// CHECK-LABEL: func @written_by_collective
func.func @written_by_collective(%p: tensor<4xf32>, %y: tensor<4xf32>) {
  // CHECK: comm.resize_storage
  comm.resize_storage %p to 16 : tensor<4xf32>
  comm.fsdp.copy %y into %p : tensor<4xf32> into tensor<4xf32>
  // expected-warning @+2 {{writes argument #0, an unsharded parameter into which gathered values are copied}}
  // expected-remark @+1 {{LimitingFactor="argument #0: the operation writes the parameter"}}
  %f = comm.all_reduce sum %y into %p on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w = comm.wait %f : !comm.future<tensor<4xf32>>
  comm.resize_storage %p to 0 : tensor<4xf32>
  return
}

// CHECK-LABEL: func @source_mutated
func.func @source_mutated(%p: tensor<4xf32>, %y: tensor<4xf32>) {
  // CHECK: comm.resize_storage
  comm.resize_storage %p to 16 : tensor<4xf32>
  comm.fsdp.copy %y into %p : tensor<4xf32> into tensor<4xf32>
  // expected-remark @+1 {{LimitingFactor="argument #0: the operation writes the value that was copied"}}
  comm.compute "add_"(%y) mutates [0] : (tensor<4xf32>) -> ()
  comm.compute "use"(%p) side_effects : (tensor<4xf32>) -> ()
  comm.resize_storage %p to 0 : tensor<4xf32>
  return
}

// CHECK-LABEL: func @view_outlives
func.func @view_outlives(%p: tensor<4xf32>, %y: tensor<4xf32>) {
  // CHECK: comm.resize_storage
  comm.resize_storage %p to 16 : tensor<4xf32>
  comm.fsdp.copy %y into %p : tensor<4xf32> into tensor<4xf32>
  %v = comm.compute "view"(%p) aliases [0] : (tensor<4xf32>) -> tensor<2x2xf32>
  comm.resize_storage %p to 0 : tensor<4xf32>
  // expected-remark @+1 {{LimitingFactor="argument #0: the operation uses the parameter, or a view of it, where it has no contents"}}
  comm.compute "use"(%v) side_effects : (tensor<2x2xf32>) -> ()
  return
}

// CHECK-LABEL: func @view_of_before
func.func @view_of_before(%p: tensor<4xf32>, %y: tensor<4xf32>, %z: tensor<4xf32>) {
  // CHECK: comm.resize_storage
  comm.resize_storage %p to 16 : tensor<4xf32>
  comm.fsdp.copy %y into %p : tensor<4xf32> into tensor<4xf32>
  %v = comm.compute "view"(%p) aliases [0] : (tensor<4xf32>) -> tensor<2x2xf32>
  comm.fsdp.copy %z into %p : tensor<4xf32> into tensor<4xf32>
  // expected-remark @+1 {{LimitingFactor="argument #0: the operation uses a view of what the parameter held before"}}
  comm.compute "use"(%v) side_effects : (tensor<2x2xf32>) -> ()
  comm.resize_storage %p to 0 : tensor<4xf32>
  return
}

// CHECK-LABEL: func @escapes
func.func @escapes(%p: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: comm.resize_storage
  comm.resize_storage %p to 16 : tensor<4xf32>
  comm.fsdp.copy %y into %p : tensor<4xf32> into tensor<4xf32>
  comm.resize_storage %p to 0 : tensor<4xf32>
  // expected-remark @+1 {{LimitingFactor="argument #0: the parameter, a view of it or a collective on it leaves the block"}}
  return %p : tensor<4xf32>
}

// CHECK-LABEL: func @in_flight_after
func.func @in_flight_after(%p: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: comm.resize_storage
  comm.resize_storage %p to 16 : tensor<4xf32>
  comm.fsdp.copy %y into %p : tensor<4xf32> into tensor<4xf32>
  %f = comm.all_reduce sum %p on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  comm.resize_storage %p to 0 : tensor<4xf32>
  // expected-remark @+1 {{LimitingFactor="argument #0: the operation uses the parameter, or a view of it, where it has no contents"}}
  %w = comm.wait %f : !comm.future<tensor<4xf32>>
  return %w : tensor<4xf32>
}
comm.group @dp #comm.iota<[1, 4]>

// CHECK-LABEL: func @resizes
func.func @resizes(%p0: tensor<4xf32>, %p1: tensor<4xf32>, %p2: tensor<4xf32>, %p3: tensor<4xf32>, %p4: tensor<4xf32>, %y: tensor<4xf32>, %c: i1) {
  // CHECK-COUNT-9: comm.resize_storage
  comm.resize_storage %p0 to 16 : tensor<4xf32>
  // expected-remark @+1 {{LimitingFactor="argument #0: the storage is full already"}}
  comm.resize_storage %p0 to 16 : tensor<4xf32>
  // expected-remark @+1 {{LimitingFactor="argument #1: the storage is empty already"}}
  comm.resize_storage %p1 to 0 : tensor<4xf32>
  // expected-remark @+1 {{LimitingFactor="argument #2: the parameter has 16 bytes, more than 8"}}
  comm.resize_storage %p2 to 8 : tensor<4xf32>
  comm.resize_storage %p3 to 16 : tensor<4xf32>
  // expected-remark @+1 {{LimitingFactor="argument #3: nothing was copied into the storage"}}
  comm.resize_storage %p3 to 0 : tensor<4xf32>
  comm.resize_storage %p4 to 16 : tensor<4xf32>
  comm.fsdp.copy %y into %p4 : tensor<4xf32> into tensor<4xf32>
  scf.if %c {
    // expected-remark @+1 {{LimitingFactor="argument #4: the resize is of a view, or nested in another operation"}}
    comm.resize_storage %p4 to 0 : tensor<4xf32>
  }
  comm.resize_storage %p4 to 0 : tensor<4xf32>
  return
}

// CHECK-LABEL: func @looks_like_it
func.func @looks_like_it(%p: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = comm.compute "empty"() : () -> tensor<4xf32>
  // CHECK: comm.resize_storage
  // expected-remark @+1 {{LimitingFactor="expected a tensor argument of the function as the parameter"}}
  comm.resize_storage %0 to 16 : tensor<4xf32>
  // A copy alone is no pattern, and nothing is said about it.
  // CHECK: comm.fsdp.copy
  comm.fsdp.copy %y into %p : tensor<4xf32> into tensor<4xf32>
  return
}

// CHECK-LABEL: func @chain
func.func @chain(%p: tensor<4xf32>, %q: tensor<4xf32>, %y: tensor<4xf32>) {
  // CHECK: comm.resize_storage %arg0
  comm.resize_storage %p to 16 : tensor<4xf32>
  comm.resize_storage %q to 16 : tensor<4xf32>
  // expected-remark @+1 {{Remark="argument #1}}
  comm.fsdp.copy %y into %q : tensor<4xf32> into tensor<4xf32>
  // CHECK: comm.fsdp.copy %arg2 into %arg0
  // expected-remark @+1 {{LimitingFactor="argument #0: what is copied is a parameter that is resized too"}}
  comm.fsdp.copy %q into %p : tensor<4xf32> into tensor<4xf32>
  comm.compute "use"(%p) side_effects : (tensor<4xf32>) -> ()
  comm.resize_storage %p to 0 : tensor<4xf32>
  comm.resize_storage %q to 0 : tensor<4xf32>
  return
}

// Tests that memrefs are left alone: the gathered buffer may be freed before the parameter's last use.
// CHECK-LABEL: func @memrefs
func.func @memrefs(%p: memref<4xf32>, %y: memref<4xf32>) {
  // CHECK: comm.resize_storage
  // expected-remark @+1 {{LimitingFactor="expected a tensor argument of the function as the parameter"}}
  comm.resize_storage %p to 16 : memref<4xf32>
  // CHECK: comm.fsdp.copy
  comm.fsdp.copy %y into %p : memref<4xf32> into memref<4xf32>
  comm.compute "use"(%p) side_effects : (memref<4xf32>) -> ()
  // expected-remark @+1 {{LimitingFactor="expected a tensor argument of the function as the parameter"}}
  comm.resize_storage %p to 0 : memref<4xf32>
  return
}

// Tests a parameter of dynamic size, of which nobody knows what full is.
// CHECK-LABEL: func @dynamic
func.func @dynamic(%p: tensor<?xf32>, %y: tensor<?xf32>) {
  // CHECK-COUNT-2: comm.resize_storage
  // expected-remark @+1 {{LimitingFactor="argument #0: the parameter has no storage of a known size of its own"}}
  comm.resize_storage %p to 16 : tensor<?xf32>
  comm.fsdp.copy %y into %p : tensor<?xf32> into tensor<?xf32>
  comm.compute "use"(%p) side_effects : (tensor<?xf32>) -> ()
  comm.resize_storage %p to 0 : tensor<?xf32>
  return
}

// Tests a copy into the parameter of a value of another shape, one into a view, and one without storage.
// CHECK-LABEL: func @copies
func.func @copies(%p: tensor<4xf32>, %q: tensor<4xf32>, %r: tensor<?xf32>, %y: tensor<4xf32>) {
  // CHECK: comm.resize_storage %arg0 to 16
  comm.resize_storage %p to 16 : tensor<4xf32>
  %v = comm.compute "view"(%p) aliases [0] : (tensor<4xf32>) -> tensor<4xf32>
  // expected-remark @-1 {{LimitingFactor="argument #0: the operation uses the parameter, or a view of it, where it has no contents"}}
  comm.fsdp.copy %y into %v : tensor<4xf32> into tensor<4xf32>
  comm.resize_storage %p to 0 : tensor<4xf32>
  // expected-remark @+1 {{LimitingFactor="argument #1: the copy is into empty storage"}}
  comm.fsdp.copy %y into %q : tensor<4xf32> into tensor<4xf32>
  comm.resize_storage %q to 16 : tensor<4xf32>
  comm.resize_storage %q to 0 : tensor<4xf32>
  return
}

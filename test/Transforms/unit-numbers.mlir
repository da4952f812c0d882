// Tests that every number may be a unit's.
// RUN: comm-opt %s --comm-schedule | FileCheck %s

comm.group @dp #comm.iota<[1, 4]>

// CHECK-LABEL: func @units
// CHECK: compute "a"{{.*}}comm.unit = 9223372036854775807
// CHECK: compute "b"{{.*}}comm.unit = -9223372036854775808
func.func @units(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<16xf32>) {
  %a = comm.compute "a"(%x) {comm.unit = 9223372036854775807 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %b = comm.compute "b"(%a) {comm.after_unit = 9223372036854775807 : i64, comm.unit = -9223372036854775808 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %g = comm.all_gather %x on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w = comm.wait %g : !comm.future<tensor<16xf32>>
  return %b, %w : tensor<4xf32>, tensor<16xf32>
}

// RUN: split-file %s %t
// RUN: comm-opt %t/program.mlir --comm-align-costs="profiles=h100-sxm,a100-sxm,h200-sxm" > %t/three.mlir
// RUN: comm-opt %t/program.mlir --comm-align-costs="profiles=a100-sxm,h200-sxm,h100-sxm" | diff %t/three.mlir -
// RUN: FileCheck %s --input-file=%t/three.mlir
// RUN: comm-opt %t/program.mlir --comm-align-costs="profiles=h100-sxm all-compute=true" | FileCheck %s --check-prefix=ALL
// RUN: not comm-opt %t/program.mlir --comm-align-costs="profiles=h100-sxm,nowhere" 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: not comm-opt %t/program.mlir --comm-align-costs 2>&1 | FileCheck %s --check-prefix=EMPTY

// Tests that matrix multiplications get the median cost whatever the order of the ranks, flops kept, and that with
// all-compute everything that takes time does.
// CHECK: compute "mm"{{.*}} #comm.cost<flops = 1000000000000, time = [[#]]>
// CHECK: compute "relu"
// CHECK-NOT: time
// ALL: compute "relu"{{.*}}#comm.cost<time = [[#]]>
// MISSING: error: {{.*}}'nowhere'
// EMPTY: error: comm-align-costs: no profiles given

//--- program.mlir
comm.group @dp #comm.iota<[1, 4]>
func.func @f(%x: tensor<1024x1024xf32>) -> (tensor<1024x1024xf32>, tensor<1024x1024xf32>) {
  %f = comm.all_reduce sum %x on @dp : (tensor<1024x1024xf32>) -> !comm.future<tensor<1024x1024xf32>>
  %a = comm.compute "mm"(%x) {comm.cost = #comm.cost<flops = 1000000000000>} : (tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %b = comm.compute "relu"(%a) : (tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %r = comm.wait %f : !comm.future<tensor<1024x1024xf32>>
  return %b, %r : tensor<1024x1024xf32>, tensor<1024x1024xf32>
}

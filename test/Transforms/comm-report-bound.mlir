// Tests the bound of a report around passes that merge, without the pipeline: it is the bound of any bucketing.

// RUN: comm-opt %s --comm-schedule --comm-report=%t.json -o /dev/null 2>&1 | FileCheck %s
// RUN: comm-opt %s --comm-raise --comm-report=%t.json -o /dev/null 2>&1 | FileCheck %s --check-prefix=ORDER

comm.group @dp #comm.iota<[1, 8]>

// CHECK-LABEL: gathers: 
// CHECK: lower bound {{.*}}; at most {{[0-9.]+}} % from optimal
// CHECK: without merging
// ORDER-LABEL: gathers: 
// ORDER: lower bound {{.*}}; at most {{[0-9.]+}} % from optimal
// ORDER-NOT: without merging
func.func @gathers(%a: tensor<16xf32>, %b: tensor<16xf32>, %c: tensor<16xf32>) -> (tensor<128xf32>, tensor<128xf32>, tensor<128xf32>) {
  %f = comm.all_gather %a on @dp : (tensor<16xf32>) -> !comm.future<tensor<128xf32>>
  %x = comm.wait %f : !comm.future<tensor<128xf32>>
  %g = comm.all_gather %b on @dp : (tensor<16xf32>) -> !comm.future<tensor<128xf32>>
  %y = comm.wait %g : !comm.future<tensor<128xf32>>
  %h = comm.all_gather %c on @dp : (tensor<16xf32>) -> !comm.future<tensor<128xf32>>
  %z = comm.wait %h : !comm.future<tensor<128xf32>>
  return %x, %y, %z : tensor<128xf32>, tensor<128xf32>, tensor<128xf32>
}

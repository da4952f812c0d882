// RUN: split-file %s %t
// RUN: comm-opt %t/program.mlir --comm-align-costs="profiles=h100-sxm,a100-sxm,h200-sxm" > %t/three.mlir
// RUN: comm-opt %t/program.mlir --comm-align-costs="profiles=a100-sxm,h200-sxm,h100-sxm" | diff %t/three.mlir -
// RUN: FileCheck %s --input-file=%t/three.mlir
// RUN: comm-opt %t/program.mlir --comm-align-costs="profiles=h100-sxm all-compute=true" | FileCheck %s --check-prefix=ALL
// RUN: not comm-opt %t/program.mlir --comm-align-costs="profiles=h100-sxm,nowhere" 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: comm-opt %t/program.mlir --comm-align-costs="profiles=h100-sxm,b200-sxm" > %t/two.mlir
// RUN: comm-opt %t/program.mlir --comm-align-costs="profiles=b200-sxm" | diff %t/two.mlir -
// RUN: comm-opt %t/program.mlir --comm-align-costs="profiles=h100-sxm,a100-sxm" > %t/two.mlir
// RUN: comm-opt %t/program.mlir --comm-align-costs="profiles=h100-sxm" | diff %t/two.mlir -
// RUN: comm-opt %t/three.mlir --comm-align-costs="profiles=a100-sxm" | diff %t/three.mlir -
// RUN: comm-opt %t/program.mlir --comm-align-costs="profiles=h100-sxm,a100-sxm" --remarks-filter=comm-align-costs 2>&1 >/dev/null \
// RUN:   | FileCheck %s --check-prefix=REMARK
// RUN: not comm-opt %t/program.mlir --comm-align-costs="profiles=%t/broken.json" 2>&1 | FileCheck %s --check-prefix=BROKEN
// RUN: not comm-opt %t/program.mlir --comm-align-costs 2>&1 | FileCheck %s --check-prefix=EMPTY

// Tests that matrix multiplications get the median cost whatever the order of the ranks, flops kept, and that with
// all-compute everything that takes time does.
// CHECK: compute "mm"{{.*}} #comm.cost<flops = 1000000000000, time = [[#]]>
// CHECK: compute "relu"
// CHECK-NOT: time
// ALL: compute "relu"{{.*}}#comm.cost<time = [[#]]>
// Tests that of an even number of ranks the lower of the two middle costs is taken, and that costs which are measured
// already stay.
// REMARK: [Passed] cost | {{.*}}"costs [[MEDIAN:[0-9.]+ [mun]s]] in later passes: the median of [[MEDIAN]] to {{[0-9.]+ [mun]s}}"
// REMARK: [Analysis] aligned | {{.*}}"1 cost is the median of 2 ranks"
// Tests that a profile that cannot be read is one line that says why.
// BROKEN: error: {{.*}}broken.json
// MISSING: error: {{.*}}'nowhere'
// EMPTY: error: comm-align-costs: no profiles given, and nothing that gathers costs from the ranks

//--- broken.json
{"name": 
//--- program.mlir
comm.group @dp #comm.iota<[1, 4]>
func.func @f(%x: tensor<1024x1024xf32>) -> (tensor<1024x1024xf32>, tensor<1024x1024xf32>) {
  %f = comm.all_reduce sum %x on @dp : (tensor<1024x1024xf32>) -> !comm.future<tensor<1024x1024xf32>>
  %a = comm.compute "mm"(%x) {comm.cost = #comm.cost<flops = 1000000000000>} : (tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %b = comm.compute "relu"(%a) : (tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %r = comm.wait %f : !comm.future<tensor<1024x1024xf32>>
  return %b, %r : tensor<1024x1024xf32>, tensor<1024x1024xf32>
}

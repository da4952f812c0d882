// RUN: split-file %s %t
// RUN: comm-opt %t/program.mlir --comm-align-costs="operations=products profiles=h100-sxm,a100-sxm,h200-sxm" > %t/three.mlir
// RUN: comm-opt %t/program.mlir --comm-align-costs="operations=products profiles=a100-sxm,h200-sxm,h100-sxm" | diff %t/three.mlir -
// RUN: FileCheck %s --input-file=%t/three.mlir
// RUN: comm-opt %t/program.mlir --comm-align-costs="profiles=h100-sxm operations=compute" | FileCheck %s --check-prefix=ALL
// RUN: comm-opt %t/program.mlir --comm-align-costs="profiles=h100-sxm,a100-sxm" | FileCheck %s --check-prefix=COLLECTIVES
// RUN: not comm-opt %t/program.mlir --comm-align-costs="profiles=h100-sxm,nowhere" 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: comm-opt %t/program.mlir --comm-align-costs="profiles=h100-sxm,b200-sxm operations=products" | sed "s/, time_lo = [0-9]*, time_hi = [0-9]*//" > %t/two.mlir
// RUN: comm-opt %t/program.mlir --comm-align-costs="profiles=b200-sxm operations=products" | diff %t/two.mlir -
// RUN: comm-opt %t/program.mlir --comm-align-costs="profiles=h100-sxm,a100-sxm operations=products" | sed "s/, time_lo = [0-9]*, time_hi = [0-9]*//" > %t/two.mlir
// RUN: comm-opt %t/program.mlir --comm-align-costs="profiles=h100-sxm operations=products" | diff %t/two.mlir -
// RUN: comm-opt %t/three.mlir --comm-align-costs="profiles=a100-sxm operations=products" | diff %t/three.mlir -
// RUN: comm-opt %t/program.mlir --comm-align-costs="profiles=h100-sxm,a100-sxm operations=products" --remarks-filter=comm-align-costs 2>&1 >/dev/null \
// RUN:   | FileCheck %s --check-prefix=REMARK
// RUN: not comm-opt %t/program.mlir --comm-align-costs="profiles=%t/broken.json" 2>&1 | FileCheck %s --check-prefix=BROKEN
// RUN: not comm-opt %t/program.mlir --comm-align-costs 2>&1 | FileCheck %s --check-prefix=EMPTY

// Tests that matrix multiplications get the median cost whatever the order of the ranks, flops kept, with the extremes as
// error bar, and that with operations=compute everything that takes time does.
// CHECK: compute "mm"{{.*}} #comm.cost<flops = 1000000000000, time = [[#]], time_lo = [[#]], time_hi = [[#]]>
// CHECK: compute "relu"
// CHECK-NOT: time
// ALL: compute "relu"{{.*}}#comm.cost<time = [[#]]>
// ALL-NOT: time_lo
// Tests that by default collectives are aligned, too, where ranks differ.
// COLLECTIVES: comm.all_reduce {{.*}}#comm.cost<time = [[#]], time_lo = [[#]], time_hi = [[#]]>
// COLLECTIVES: compute "mm"{{.*}}time_hi
// COLLECTIVES: compute "relu"{{.*}}time_hi
// Tests that of an even number of ranks the lower of the two middle costs is taken, and that costs which are measured
// already stay.
// REMARK: [Passed] cost | {{.*}}"costs [[MEDIAN:[0-9.]+ [mun]s]] in later passes: the median of [[MEDIAN]] to {{[0-9.]+ [mun]s}}"
// Tests that ranks that are more than 10 % apart are flagged.
// REMARK: [Analysis] skew | {{.*}}Kind=comm.compute{{.*}}"ranks are more than 10 % apart: [[MEDIAN]] to {{[0-9.]+ [mun]s}}"
// REMARK: [Analysis] aligned | {{.*}}Operations=1, Ranks=2, Remark="1 cost is the median of 2 ranks; 1 with skew", Skewed=1
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

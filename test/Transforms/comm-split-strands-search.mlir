// RUN: comm-opt %s --reorder-comm-overlap="strands=auto table=true" --comm-machine=h100-sxm --comm-report=%t.json -o %t.mlir 2>&1 | FileCheck %s --check-prefix=TABLE
// RUN: FileCheck %s --check-prefix=JSON < %t.json
// RUN: comm-opt %s --comm-split-strands="machine=h100-sxm" --remarks-filter=comm-split-strands -o %t.mlir 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: comm-opt %s --comm-split-strands="machine=h100-sxm window=40 stagger=0 max-strands=2" --remarks-filter=comm-split-strands -o %t.mlir 2>&1 | FileCheck %s --check-prefix=WINDOW

// Tests that the report has the bound for every split, which the answer does not beat, and the break-even, and that the
// remarks say why each region was split.
// TABLE: makespan
// TABLE: any split {{.*}} % from optimal
// TABLE: break-even {{.*}} %
// JSON-DAG: "split_lower_bound":
// JSON-DAG: "split_lower_bound_by": "compute lane"
// JSON-DAG: "unsplit": 713
// JSON-DAG: "split_break_even_permille":
// REMARK: [Passed] region {{.*}} Collectives=1, CommunicationNs={{[0-9]+}}, ComputationNs={{[0-9]+}}, {{.*}}Operations=5
// REMARK: [Passed] strands {{.*}}BreakEvenPermille={{[1-9][0-9]*}}, {{.*}}JoinsInPlace=1, {{.*}}MakespanNsUnsplit=713{{.*}}SplitLowerBoundNs=4

// Tests that a window leaves the work whole that is further from the collective: the first product.
// WINDOW: [Passed] strands {{.*}}Operations=4, {{.*}}Stagger=0, Strands=2, {{.*}}WindowPercent=40

// Tests that nothing is tried if the bound says that no split gains anything: the sum needs the only product.
// REMARK: [Missed] strands {{.*}}Remark="not split: no split can gain 0.2 %; {{.*}}SplitLowerBoundNs={{[1-9]}}
comm.group @tp #comm.iota<[1, 8]>

func.func @layer(%x: tensor<8192x4096xbf16>, %up: tensor<4096x1792xbf16>, %down: tensor<1792x4096xbf16>, %next: tensor<4096x1792xbf16>) -> tensor<8192x1792xbf16> {
  %h = comm.compute "aten.mm"(%x, %up) {comm.cost = #comm.cost<flops = 120259084288, bytes = 111149056>} : (tensor<8192x4096xbf16>, tensor<4096x1792xbf16>) -> tensor<8192x1792xbf16>
  %y = comm.compute "aten.mm"(%h, %down) {comm.cost = #comm.cost<flops = 120259084288, bytes = 111149056>} : (tensor<8192x1792xbf16>, tensor<1792x4096xbf16>) -> tensor<8192x4096xbf16>
  %f = comm.all_reduce sum %y on @tp : (tensor<8192x4096xbf16>) -> !comm.future<tensor<8192x4096xbf16>>
  %s = comm.wait %f : !comm.future<tensor<8192x4096xbf16>>
  %z = comm.compute "aten.mm"(%s, %next) {comm.cost = #comm.cost<flops = 120259084288, bytes = 111149056>} : (tensor<8192x4096xbf16>, tensor<4096x1792xbf16>) -> tensor<8192x1792xbf16>
  return %z : tensor<8192x1792xbf16>
}

func.func @hopeless(%x: tensor<8192x4096xbf16>, %y: tensor<64x64xbf16>) -> (tensor<8192x4096xbf16>, tensor<64x64xbf16>) {
  %h = comm.compute "aten.mm"(%x, %x) {comm.cost = #comm.cost<flops = 1120259084288, bytes = 111149056>} : (tensor<8192x4096xbf16>, tensor<8192x4096xbf16>) -> tensor<8192x4096xbf16>
  %f = comm.all_reduce sum %y on @tp : (tensor<64x64xbf16>) -> !comm.future<tensor<64x64xbf16>>
  %s = comm.wait %f : !comm.future<tensor<64x64xbf16>>
  return %h, %s : tensor<8192x4096xbf16>, tensor<64x64xbf16>
}

// RUN: comm-opt %s --comm-split-strands="machine=h100-sxm" --remarks-filter=comm-split-strands -o /dev/null 2>&1 | FileCheck %s --check-prefix=EXACT
// RUN: comm-opt %s --comm-split-strands="machine=h100-sxm allow-reassociation" --remarks-filter=comm-split-strands -o /dev/null 2>&1 | FileCheck %s
// RUN: comm-opt %s --reorder-comm-overlap="machine=h100-sxm strands=auto allow-reassociation" -o - 2>/dev/null | FileCheck %s --check-prefix=PIPELINE

// Tests that the gradient of a weight behind a reduction gains by partial results: each is computed while the next chunk
// is reduced. Without the option only the product before the reduction is split, and the bound for any split is higher. The
// remark counts the sums. The other dimension of the reduction is a prime, so it does not divide.
comm.group @tp #comm.iota<[1, 8]>
// EXACT: [Passed] strands | {{.*}}split: 704 us{{.*}}at least 641 us{{.*}}Sums=0
// CHECK: [Passed] strands | {{.*}}split: 600 us{{.*}}at least 500 us{{.*}}Sums=1
// PIPELINE: linalg.generic
func.func @backward(%x: tensor<4096x8192xbf16>, %dy: tensor<8192x1792xbf16>, %w: tensor<1792x4093xbf16>) -> tensor<4096x4093xbf16> {
  %y = comm.compute "aten.mm"(%dy, %w) {comm.cost = #comm.cost<flops = 120259084288, bytes = 111149056>} : (tensor<8192x1792xbf16>, tensor<1792x4093xbf16>) -> tensor<8192x4093xbf16>
  %f = comm.all_reduce sum %y on @tp : (tensor<8192x4093xbf16>) -> !comm.future<tensor<8192x4093xbf16>>
  %s = comm.wait %f : !comm.future<tensor<8192x4093xbf16>>
  %g = comm.compute "aten.mm"(%x, %s) {comm.cost = #comm.cost<flops = 274877906944, bytes = 167772160>} : (tensor<4096x8192xbf16>, tensor<8192x4093xbf16>) -> tensor<4096x4093xbf16>
  return %g : tensor<4096x4093xbf16>
}

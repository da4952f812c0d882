// RUN: comm-opt %s --comm-bucket | FileCheck %s --check-prefix=BUCKET
// RUN: comm-opt %s --comm-bucket="cap-bytes=67108864" | FileCheck %s --check-prefix=CAP
// RUN: comm-opt %s --canonicalize --comm-bucket="fsdp-only" | FileCheck %s --check-prefix=FSDP
// RUN: comm-opt %s --reorder-comm-overlap="effort=500 report-file=%t.json table=false" -o %t.mlir 2>&1 | count 0
// RUN: %python %S/Inputs/check_scenarios.py %t.json %s

// The bucketing scenarios that PyTorch Inductor's tests know, in this project's IR. comm-bucket goes by dependences and caps alone;
// whether a merge pays is the search's matter, which must never end slower or with more exposed time than it was given. The last
// columns are what `reorder-comm-overlap` must reach: at most so much exposed time, ns, and, where merging would expose
// a collective, at least so many collectives. ("count 0": no warning that the block is not what was predicted.)
//
// EXPECT: scenario              exposed  collectives  why
// EXPECT: s06_independent             0            1  no dependence between the two: one bucket, hidden by either matmul
// EXPECT: s07_nested                  0            2  the small one is needed before the large one can be there
// EXPECT: s08_scatter_between         0            2  the scatter's result is needed before the second gather's
// EXPECT: s09_dependent_hider         0            1  each hides behind a matmul, the second's needs the first
// EXPECT: s10_depends_on_hider        0            2  the second needs the matmul that hides the first
// EXPECT: s11_split_for_overlap  230000            1  the second pair can hide behind the first matmul, the first behind nothing
// EXPECT: s12_exposed_with_hidden     0            1  the exposed one fits behind the matmul of the hidden one
// EXPECT: s14_shared_hider            0            1  one matmul covers both
// EXPECT: s15_fused_cast              0            1  the packs do the casts; a bucket is acyclic
// EXPECT: s16_path               230000            2  the second needs the first
// EXPECT: s17_other_group        114000            2  another group's collective is no member
// EXPECT: s24_coalesced          342000            1  a start of two tensors is one collective
// EXPECT: s25_fsdp_not_tp        230000            2  the activation's gather needs a parameter's
//
// 13 (several element types in one gather, exact bytes) is comm-bucket-mixed-types.mlir. Caps of 0, 1 and no limit, one collective,
// kinds and forms: comm-bucket-options.mlir; chains, groups and types that alternate, thousands of collectives:
// comm-bucket-large.test; equal bits: Run/rewrites.test; what is refused: comm-bucket.mlir.

comm.group @dp #comm.iota<[1, 8]>
comm.group @tp #comm.iota<[4, 2]>

// Tests two gathers, each behind its own matmul.
// BUCKET-LABEL: func @s06_independent
// BUCKET-COUNT-1: comm.all_gather %
// BUCKET-NOT: comm.all_gather %
func.func @s06_independent(%a: tensor<1048576xf32>, %b: tensor<1048576xf32>, %x: tensor<65536xf32>) -> (tensor<65536xf32>) {
  %f1 = comm.all_gather %a on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %m1 = comm.compute "mm"(%x) {comm.cost = #comm.cost<time = 400000>} : (tensor<65536xf32>) -> tensor<65536xf32>
  %w1 = comm.wait %f1 : !comm.future<tensor<8388608xf32>>
  %f2 = comm.all_gather %b on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %m2 = comm.compute "mm"(%m1) {comm.cost = #comm.cost<time = 400000>} : (tensor<65536xf32>) -> tensor<65536xf32>
  %w2 = comm.wait %f2 : !comm.future<tensor<8388608xf32>>
  %r = comm.compute "use"(%w1, %w2, %m2) {comm.cost = #comm.cost<time = 1000>} : (tensor<8388608xf32>, tensor<8388608xf32>, tensor<65536xf32>) -> tensor<65536xf32>
  return %r : tensor<65536xf32>
}

// Tests a small gather that is waited for while a large one is in flight: with the large one it would be late.
// BUCKET-LABEL: func @s07_nested
// BUCKET-COUNT-1: comm.all_gather %
// BUCKET-NOT: comm.all_gather %
func.func @s07_nested(%a: tensor<1048576xf32>, %b: tensor<65536xf32>, %x: tensor<65536xf32>) -> (tensor<65536xf32>) {
  %f2 = comm.all_gather %b on @dp : (tensor<65536xf32>) -> !comm.future<tensor<524288xf32>>
  %f1 = comm.all_gather %a on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %m1 = comm.compute "mm"(%x) {comm.cost = #comm.cost<time = 60000>} : (tensor<65536xf32>) -> tensor<65536xf32>
  %w2 = comm.wait %f2 : !comm.future<tensor<524288xf32>>
  %m2 = comm.compute "mm"(%w2, %m1) {comm.cost = #comm.cost<time = 400000>} : (tensor<524288xf32>, tensor<65536xf32>) -> tensor<65536xf32>
  %w1 = comm.wait %f1 : !comm.future<tensor<8388608xf32>>
  %r = comm.compute "use"(%w1, %m2) {comm.cost = #comm.cost<time = 1000>} : (tensor<8388608xf32>, tensor<65536xf32>) -> tensor<65536xf32>
  return %r : tensor<65536xf32>
}

// Tests that a reduce-scatter that is issued between two gathers is not held up by their bucket.
// BUCKET-LABEL: func @s08_scatter_between
// BUCKET-DAG: comm.reduce_scatter
// BUCKET-DAG: comm.fsdp.all_gather_copy_in
func.func @s08_scatter_between(%a: tensor<1048576xf32>, %b: tensor<1048576xf32>, %q: tensor<524288xf32>, %x: tensor<65536xf32>) -> (tensor<65536xf32>) {
  %f1 = comm.all_gather %a on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %f3 = comm.reduce_scatter sum %q on @dp : (tensor<524288xf32>) -> !comm.future<tensor<65536xf32>>
  %m1 = comm.compute "mm"(%x) {comm.cost = #comm.cost<time = 400000>} : (tensor<65536xf32>) -> tensor<65536xf32>
  %w3 = comm.wait %f3 : !comm.future<tensor<65536xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<8388608xf32>>
  %f2 = comm.all_gather %b on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %m2 = comm.compute "mm"(%m1, %w3) {comm.cost = #comm.cost<time = 400000>} : (tensor<65536xf32>, tensor<65536xf32>) -> tensor<65536xf32>
  %w2 = comm.wait %f2 : !comm.future<tensor<8388608xf32>>
  %r = comm.compute "use"(%w1, %w2, %m2) {comm.cost = #comm.cost<time = 1000>} : (tensor<8388608xf32>, tensor<8388608xf32>, tensor<65536xf32>) -> tensor<65536xf32>
  return %r : tensor<65536xf32>
}

// Tests that the compute that hides the second gather needs the first: one bucket would have nothing left to hide behind.
// BUCKET-LABEL: func @s09_dependent_hider
// BUCKET-COUNT-1: comm.all_gather %
// BUCKET-NOT: comm.all_gather %
func.func @s09_dependent_hider(%a: tensor<1048576xf32>, %b: tensor<1048576xf32>, %x: tensor<65536xf32>) -> (tensor<65536xf32>) {
  %f1 = comm.all_gather %a on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %m1 = comm.compute "mm"(%x) {comm.cost = #comm.cost<time = 200000>} : (tensor<65536xf32>) -> tensor<65536xf32>
  %w1 = comm.wait %f1 : !comm.future<tensor<8388608xf32>>
  %f2 = comm.all_gather %b on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %m2 = comm.compute "mm"(%w1, %m1) {comm.cost = #comm.cost<time = 200000>} : (tensor<8388608xf32>, tensor<65536xf32>) -> tensor<65536xf32>
  %w2 = comm.wait %f2 : !comm.future<tensor<8388608xf32>>
  %r = comm.compute "use"(%w2, %m2) {comm.cost = #comm.cost<time = 1000>} : (tensor<8388608xf32>, tensor<65536xf32>) -> tensor<65536xf32>
  return %r : tensor<65536xf32>
}

// Tests that the second gather needs what hides the first: together they would start behind it.
// BUCKET-LABEL: func @s10_depends_on_hider
// BUCKET: %[[M:.*]] = comm.compute "mm"
// BUCKET: comm.fsdp.all_gather_copy_in %{{.*}}, %[[M]]
func.func @s10_depends_on_hider(%a: tensor<1048576xf32>, %x: tensor<65536xf32>) -> (tensor<65536xf32>) {
  %f1 = comm.all_gather %a on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %m1 = comm.compute "mm"(%x) {comm.cost = #comm.cost<time = 200000>} : (tensor<65536xf32>) -> tensor<1048576xf32>
  %w1 = comm.wait %f1 : !comm.future<tensor<8388608xf32>>
  %f2 = comm.all_gather %m1 on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %m2 = comm.compute "mm"(%w1) {comm.cost = #comm.cost<time = 200000>} : (tensor<8388608xf32>) -> tensor<65536xf32>
  %w2 = comm.wait %f2 : !comm.future<tensor<8388608xf32>>
  %r = comm.compute "use"(%w2, %m2) {comm.cost = #comm.cost<time = 1000>} : (tensor<8388608xf32>, tensor<65536xf32>) -> tensor<65536xf32>
  return %r : tensor<65536xf32>
}

// Tests four gathers of which the first two are needed first: with a cap of two, two buckets.
// BUCKET-LABEL: func @s11_split_for_overlap
// BUCKET-COUNT-1: comm.all_gather %
// CAP-LABEL: func @s11_split_for_overlap
// CAP: comm.fsdp.all_gather_copy_in %arg0, %arg1
// CAP: comm.fsdp.all_gather_copy_in %arg2, %arg3
func.func @s11_split_for_overlap(%a: tensor<1048576xf32>, %b: tensor<1048576xf32>, %c: tensor<1048576xf32>, %d: tensor<1048576xf32>, %x: tensor<65536xf32>) -> (tensor<65536xf32>) {
  %f1 = comm.all_gather %a on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %f2 = comm.all_gather %b on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %f3 = comm.all_gather %c on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %f4 = comm.all_gather %d on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<8388608xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<8388608xf32>>
  %m1 = comm.compute "mm"(%x, %w1, %w2) {comm.cost = #comm.cost<time = 500000>} : (tensor<65536xf32>, tensor<8388608xf32>, tensor<8388608xf32>) -> tensor<65536xf32>
  %w3 = comm.wait %f3 : !comm.future<tensor<8388608xf32>>
  %w4 = comm.wait %f4 : !comm.future<tensor<8388608xf32>>
  %m2 = comm.compute "mm"(%m1, %w3, %w4) {comm.cost = #comm.cost<time = 500000>} : (tensor<65536xf32>, tensor<8388608xf32>, tensor<8388608xf32>) -> tensor<65536xf32>
  return %m2 : tensor<65536xf32>
}

// Tests that an exposed small gather gets hidden, next to or in one with a hidden one.
// BUCKET-LABEL: func @s12_exposed_with_hidden
// BUCKET-COUNT-1: comm.all_gather %
// BUCKET-NOT: comm.all_gather %
func.func @s12_exposed_with_hidden(%a: tensor<1048576xf32>, %b: tensor<65536xf32>, %x: tensor<65536xf32>) -> (tensor<65536xf32>) {
  %f1 = comm.all_gather %a on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %m1 = comm.compute "mm"(%x) {comm.cost = #comm.cost<time = 600000>} : (tensor<65536xf32>) -> tensor<65536xf32>
  %w1 = comm.wait %f1 : !comm.future<tensor<8388608xf32>>
  %f2 = comm.all_gather %b on @dp : (tensor<65536xf32>) -> !comm.future<tensor<524288xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<524288xf32>>
  %r = comm.compute "use"(%w1, %w2, %m1) {comm.cost = #comm.cost<time = 1000>} : (tensor<8388608xf32>, tensor<524288xf32>, tensor<65536xf32>) -> tensor<65536xf32>
  return %r : tensor<65536xf32>
}

// Tests that one compute hides both gathers.
// BUCKET-LABEL: func @s14_shared_hider
// BUCKET-COUNT-1: comm.all_gather %
// BUCKET-NOT: comm.all_gather %
func.func @s14_shared_hider(%a: tensor<1048576xf32>, %b: tensor<1048576xf32>, %x: tensor<65536xf32>) -> (tensor<65536xf32>) {
  %f1 = comm.all_gather %a on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %f2 = comm.all_gather %b on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %m1 = comm.compute "mm"(%x) {comm.cost = #comm.cost<time = 600000>} : (tensor<65536xf32>) -> tensor<65536xf32>
  %w1 = comm.wait %f1 : !comm.future<tensor<8388608xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<8388608xf32>>
  %r = comm.compute "use"(%w1, %w2, %m1) {comm.cost = #comm.cost<time = 1000>} : (tensor<8388608xf32>, tensor<8388608xf32>, tensor<65536xf32>) -> tensor<65536xf32>
  return %r : tensor<65536xf32>
}

// Tests that casts on both sides of the first wait go into one pack, without a cycle.
// BUCKET-LABEL: func @s15_fused_cast
// BUCKET-NOT: truncf
// BUCKET: comm.fsdp.all_gather_copy_in %arg0, %arg1 on @dp : (tensor<1048576xf32>, tensor<1048576xf32>) -> (tensor<2097152xbf16>
// BUCKET-NOT: truncf
// BUCKET: return
func.func @s15_fused_cast(%a: tensor<1048576xf32>, %b: tensor<1048576xf32>, %x: tensor<65536xf32>) -> (tensor<65536xf32>) {
  %ha = arith.truncf %a : tensor<1048576xf32> to tensor<1048576xbf16>
  %f1 = comm.all_gather %ha on @dp : (tensor<1048576xbf16>) -> !comm.future<tensor<8388608xbf16>>
  %m1 = comm.compute "mm"(%x) {comm.cost = #comm.cost<time = 300000>} : (tensor<65536xf32>) -> tensor<65536xf32>
  %w1 = comm.wait %f1 : !comm.future<tensor<8388608xbf16>>
  %m2 = comm.compute "mm"(%w1, %m1) {comm.cost = #comm.cost<time = 300000>} : (tensor<8388608xbf16>, tensor<65536xf32>) -> tensor<65536xf32>
  %hb = arith.truncf %b : tensor<1048576xf32> to tensor<1048576xbf16>
  %f2 = comm.all_gather %hb on @dp : (tensor<1048576xbf16>) -> !comm.future<tensor<8388608xbf16>>
  %m3 = comm.compute "mm"(%m2) {comm.cost = #comm.cost<time = 300000>} : (tensor<65536xf32>) -> tensor<65536xf32>
  %w2 = comm.wait %f2 : !comm.future<tensor<8388608xbf16>>
  %r = comm.compute "use"(%w2, %m3) {comm.cost = #comm.cost<time = 1000>} : (tensor<8388608xbf16>, tensor<65536xf32>) -> tensor<65536xf32>
  return %r : tensor<65536xf32>
}

// Tests that a gather of what another one made stays apart from it.
// BUCKET-LABEL: func @s16_path
// BUCKET-NOT: comm.fsdp
// BUCKET-COUNT-2: comm.all_gather %
// BUCKET: return
func.func @s16_path(%a: tensor<1048576xf32>) -> (tensor<8388608xf32>) {
  %f1 = comm.all_gather %a on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<8388608xf32>>
  %m1 = comm.compute "slice"(%w1) {comm.cost = #comm.cost<time = 1000>} : (tensor<8388608xf32>) -> tensor<1048576xf32>
  %f2 = comm.all_gather %m1 on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<8388608xf32>>
  return %w2 : tensor<8388608xf32>
}

// Tests a collective of another group that is issued before an exposed wait: no bucket takes it, and it is waited for no later.
// BUCKET-LABEL: func @s17_other_group
// BUCKET-DAG: comm.all_reduce sum %{{.*}} on @tp
// BUCKET-DAG: comm.fsdp.all_gather_copy_in %arg0, %arg1 on @dp
func.func @s17_other_group(%a: tensor<1048576xf32>, %b: tensor<1048576xf32>, %x: tensor<65536xf32>) -> (tensor<65536xf32>) {
  %f1 = comm.all_gather %a on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %f3 = comm.all_reduce sum %x on @tp : (tensor<65536xf32>) -> !comm.future<tensor<65536xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<8388608xf32>>
  %m1 = comm.compute "mm"(%w1) {comm.cost = #comm.cost<time = 200000>} : (tensor<8388608xf32>) -> tensor<65536xf32>
  %w3 = comm.wait %f3 : !comm.future<tensor<65536xf32>>
  %f2 = comm.all_gather %b on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %m2 = comm.compute "mm"(%m1, %w3) {comm.cost = #comm.cost<time = 200000>} : (tensor<65536xf32>, tensor<65536xf32>) -> tensor<65536xf32>
  %w2 = comm.wait %f2 : !comm.future<tensor<8388608xf32>>
  %r = comm.compute "use"(%w2, %m2) {comm.cost = #comm.cost<time = 1000>} : (tensor<8388608xf32>, tensor<65536xf32>) -> tensor<65536xf32>
  return %r : tensor<65536xf32>
}

// Tests that a coalesced start counts once, and is no member of a bucket.
// BUCKET-LABEL: func @s24_coalesced
// BUCKET-NOT: comm.fsdp
// BUCKET: comm.all_gather %arg0, %arg1 on @dp
// BUCKET: comm.all_gather %arg0 on @dp
// BUCKET: return
func.func @s24_coalesced(%a: tensor<1048576xf32>, %b: tensor<1048576xf32>) -> (tensor<8388608xf32>, tensor<8388608xf32>, tensor<8388608xf32>) {
  %f1 = comm.all_gather %a, %b on @dp : (tensor<1048576xf32>, tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>, tensor<8388608xf32>>
  %w1:2 = comm.wait %f1 : !comm.future<tensor<8388608xf32>, tensor<8388608xf32>>
  %f2 = comm.all_gather %a on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<8388608xf32>>
  return %w1#0, %w1#1, %w2 : tensor<8388608xf32>, tensor<8388608xf32>, tensor<8388608xf32>
}

// Tests that gathers of parameters merge, one with a second wait too once that is folded, and a gather of an activation does not.
// BUCKET-LABEL: func @s25_fsdp_not_tp
// BUCKET: return
// FSDP-LABEL: func @s25_fsdp_not_tp
// FSDP-DAG: comm.fsdp.all_gather_copy_in %arg0, %arg1 on @dp
// FSDP-DAG: %[[M:.*]] = comm.compute "mm"
// FSDP-DAG: comm.all_gather %[[M]] on @dp
func.func @s25_fsdp_not_tp(%a: tensor<1048576xf32>, %b: tensor<1048576xf32>, %x: tensor<65536xf32>) -> (tensor<8388608xf32>, tensor<8388608xf32>) {
  %f1 = comm.all_gather %a on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<8388608xf32>>
  %again = comm.wait %f1 : !comm.future<tensor<8388608xf32>>
  %m1 = comm.compute "mm"(%w1, %again) {comm.cost = #comm.cost<time = 200000>} : (tensor<8388608xf32>, tensor<8388608xf32>) -> tensor<1048576xf32>
  %f2 = comm.all_gather %b on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<8388608xf32>>
  %f3 = comm.all_gather %m1 on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %w3 = comm.wait %f3 : !comm.future<tensor<8388608xf32>>
  return %w2, %w3 : tensor<8388608xf32>, tensor<8388608xf32>
}

// RUN: comm-opt %s --comm-align-costs="profiles=h100-sxm,a100-sxm,h200-sxm operations=products" --remarks-filter=comm-align-costs 2>%t.txt \
// RUN:   | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK --input-file=%t.txt
// RUN: comm-opt %s --comm-align-costs="profiles=h100-sxm operations=compute" --remarks-filter=comm-align-costs 2>&1 >/dev/null \
// RUN:   | FileCheck %s --check-prefix=ALL
// RUN: comm-opt %s --comm-align-costs="profiles=h100-sxm,a100-sxm" --remarks-filter=comm-align-costs 2>&1 >%t.all.mlir \
// RUN:   | FileCheck %s --check-prefix=EVERY
// RUN: FileCheck %s --check-prefix=TIMED --input-file=%t.all.mlir

// Tests that ranks with different machines decide alike on linalg programs: a named contraction, a generic one, and a
// loop with one inside get the median. A pointwise operation and the copies of fully sharded programs do not, and a loop
// with collectives has no time of its own: what it contains is aligned.
// REMARK: 4 costs are the median of 3 ranks
// CHECK-LABEL: func @structured
// CHECK: comm.fsdp.all_gather_copy_in
// CHECK-NOT: comm.cost
// CHECK: linalg.matmul {comm.cost = #comm.cost<time = [[#]], time_lo = [[#]], time_hi = [[#]]>}
// CHECK: iterator_types = ["parallel", "parallel", "reduction"]
// CHECK-SAME: attrs = {comm.cost = #comm.cost<time = [[#]], time_lo = [[#]], time_hi = [[#]]>}
// CHECK: iterator_types = ["parallel", "parallel"]
// CHECK-NOT: comm.cost
// CHECK: scf.for
// CHECK: linalg.matmul ins
// CHECK: } {comm.cost = #comm.cost<time = [[#]], time_lo = [[#]], time_hi = [[#]]>}
// CHECK: scf.for
// CHECK: linalg.matmul {comm.cost = #comm.cost<time = [[#]], time_lo = [[#]], time_hi = [[#]]>}
// CHECK: comm.all_reduce
// CHECK: scf.yield
// CHECK-NOT: comm.cost
// CHECK: return

// Tests that with operations=compute the pointwise operation and the copy-in take part too.
// ALL: 6 costs are the median of 1 rank

// Tests that by default the two collectives do as well, that in the loop included.
// EVERY: 8 costs are the median of 2 ranks
// TIMED: comm.all_gather {{.*}}time_lo
// TIMED: comm.all_reduce {{.*}}time_lo

comm.group @dp #comm.iota<[1, 4]>
#row = affine_map<(d0, d1, d2) -> (d0, d2)>
#column = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>

func.func @structured(%x: tensor<1024x1024xf32>, %p0: tensor<1024xf32>, %n: index) -> (tensor<1024x1024xf32>, tensor<1024x1024xf32>, tensor<4096xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %e = tensor.empty() : tensor<1024x1024xf32>
  %s, %b = comm.fsdp.all_gather_copy_in %p0 on @dp : (tensor<1024xf32>) -> (tensor<1024xf32>, tensor<4096xf32>)
  %f = comm.all_gather %s into %b on @dp : (tensor<1024xf32>) -> !comm.future<tensor<4096xf32>>
  %m = linalg.matmul ins(%x, %x : tensor<1024x1024xf32>, tensor<1024x1024xf32>) outs(%e : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %g = linalg.generic {indexing_maps = [#row, #column, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %m : tensor<1024x1024xf32>, tensor<1024x1024xf32>) outs(%e : tensor<1024x1024xf32>) {
  ^bb0(%l: f32, %r: f32, %c: f32):
    %p = arith.mulf %l, %r : f32
    %q = arith.addf %c, %p : f32
    linalg.yield %q : f32
  } -> tensor<1024x1024xf32>
  %h = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g : tensor<1024x1024xf32>) outs(%e : tensor<1024x1024xf32>) {
  ^bb0(%l: f32, %c: f32):
    %p = arith.mulf %l, %l : f32
    linalg.yield %p : f32
  } -> tensor<1024x1024xf32>
  %i = scf.for %k = %c0 to %n step %c1 iter_args(%acc = %h) -> (tensor<1024x1024xf32>) {
    %j = linalg.matmul ins(%acc, %x : tensor<1024x1024xf32>, tensor<1024x1024xf32>) outs(%e : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    scf.yield %j : tensor<1024x1024xf32>
  }
  %o = scf.for %k = %c0 to %n step %c1 iter_args(%acc = %i) -> (tensor<1024x1024xf32>) {
    %j = linalg.matmul ins(%acc, %x : tensor<1024x1024xf32>, tensor<1024x1024xf32>) outs(%e : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
    %fr = comm.all_reduce sum %j on @dp : (tensor<1024x1024xf32>) -> !comm.future<tensor<1024x1024xf32>>
    %wr = comm.wait %fr : !comm.future<tensor<1024x1024xf32>>
    scf.yield %wr : tensor<1024x1024xf32>
  }
  %w = comm.wait %f : !comm.future<tensor<4096xf32>>
  return %i, %o, %w : tensor<1024x1024xf32>, tensor<1024x1024xf32>, tensor<4096xf32>
}

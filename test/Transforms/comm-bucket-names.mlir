// RUN: comm-opt %s --comm-bucket='names=layers\.([0-9]+)\.' | FileCheck %s --check-prefixes=LAYERS,PROGRAM
// RUN: comm-opt %s --comm-bucket='names=layers\.([0-9]+)\. member-order=signature' | FileCheck %s --check-prefixes=LAYERS,SIGNATURE
// RUN: comm-opt %s --comm-bucket='names=layers member-order=signature' | FileCheck %s --check-prefix=ALL
// RUN: comm-opt %s --comm-bucket='names=layers\.([0-9]+)\.' --remarks-filter=comm-bucket -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: not comm-opt %s --comm-bucket='names=laye(rs' 2>&1 | FileCheck %s --check-prefix=PATTERN

// Equal bits, also with an order behind it that merges nothing more.
// RUN: comm-opt %s -o %t.mlir --reorder-comm-overlap='passes=comm-bucket{names=layers\.([0-9]+)\. member-order=signature},comm-schedule bucketing=false memory-budget-ratio=1'
// RUN: comm-run %s --compare %t.mlir

// PATTERN: error: comm-bucket: names: 'laye(rs' is no pattern: parentheses not balanced

// Collectives go together by the names of what they gather, or by their own; the rest stays apart. The arguments stand in the order
// of a module's parameters, the gathers in the order of their use, and the reductions in that of a backward pass.
comm.group @dp #comm.iota<[1, 4]>

// REMARK-DAG: refused {{.*}} LimitingFactor="none of its names matches the option names"
// REMARK-DAG: refused {{.*}} LimitingFactor="no other collective of its kind, group, element type and reduction, and of its name, fits in its bucket"
// REMARK-DAG: all_gather, LimitingFactor=none, Remark="2 collectives merged into one, packed"
// REMARK-DAG: reduce_scatter, LimitingFactor=none, Remark="2 collectives merged into one, packed"

// LAYERS-LABEL: func @step(
// LAYERS-SAME: %[[A:[a-z0-9]+]]: tensor<4xf32>, %[[B:[a-z0-9]+]]: tensor<2xf32>, %[[C:[a-z0-9]+]]: tensor<4xf32>, %[[D:[a-z0-9]+]]: tensor<4xf32>, %[[E:[a-z0-9]+]]: tensor<4xf32>
// LAYERS: all_gather %[[C]] on
// PROGRAM: all_gather_copy_in %[[B]], %[[A]] on
// SIGNATURE: all_gather_copy_in %[[A]], %[[B]] on
// LAYERS: all_gather %[[D]] on
// PROGRAM: chunk_cat {{.*}} : (tensor<8xf32>, tensor<16xf32>) -> tensor<24xf32>
// SIGNATURE: chunk_cat {{.*}} : (tensor<16xf32>, tensor<8xf32>) -> tensor<24xf32>
// ALL: all_gather_copy_in %arg0, %arg1, %arg2 on
func.func @step(%a: tensor<4xf32> loc("layers.0.up"), %b: tensor<2xf32> loc("b"("layers.0.down")), %c: tensor<4xf32> loc("layers.1.up"), %d: tensor<4xf32> loc("head"), %e: tensor<4xf32>) -> (tensor<4xf32>, tensor<2xf32>, tensor<16xf32>, tensor<16xf32>) {
  %f0 = comm.all_gather %c on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<16xf32>>
  %f1 = comm.all_gather %b on @dp : (tensor<2xf32>) -> !comm.future<tensor<8xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<8xf32>>
  %f2 = comm.all_gather %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<16xf32>>
  %f3 = comm.all_gather %d on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w3 = comm.wait %f3 : !comm.future<tensor<16xf32>>
  %f4 = comm.reduce_scatter sum %w1 on @dp : (tensor<8xf32>) -> !comm.future<tensor<2xf32>> loc("reduce_scatter_1"("layers.0."))
  %w4 = comm.wait %f4 : !comm.future<tensor<2xf32>>
  %f5 = comm.reduce_scatter sum %w2 on @dp : (tensor<16xf32>) -> !comm.future<tensor<4xf32>> loc("reduce_scatter_2"("layers.0."))
  %w5 = comm.wait %f5 : !comm.future<tensor<4xf32>>
  return %w5, %w4, %w0, %w3 : tensor<4xf32>, tensor<2xf32>, tensor<16xf32>, tensor<16xf32>
}

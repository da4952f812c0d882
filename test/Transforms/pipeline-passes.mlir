// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-bucket{cap-bytes=128,64},canonicalize table=false" | FileCheck %s --check-prefix=BUCKET
// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-bucket{kinds=all_reduce form=coalesced} table=false" | FileCheck %s --check-prefix=NONE
// RUN: comm-opt %s --reorder-comm-overlap="passes=func.func(canonicalize{max-iterations=2},cse),comm-raise bucketing=false" \
// RUN:   --comm-report=%t.json 2>&1 | FileCheck %s --check-prefix=NESTED
// RUN: FileCheck %s --check-prefix=JSON --input-file=%t.json
// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-reorder-preserving-peak-memory,comm-sink-waits-preserving-peak-memory table=false" --dump-pass-pipeline -o /dev/null 2>&1 | FileCheck %s --check-prefix=DEFAULTS
// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-reorder-preserving-peak-memory,comm-sink-waits-preserving-peak-memory table=false" > %t.inductor.mlir
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory --comm-sink-waits-preserving-peak-memory | diff %t.inductor.mlir -
// RUN: comm-opt %s --reorder-comm-overlap="memory-budget-ratio=0.5 passes=comm-sink-waits-preserving-peak-memory{swap-with-collectives=true}" \
// RUN:   --dump-pass-pipeline -o /dev/null 2>&1 | FileCheck %s --check-prefix=OWN

// Tests that an entry of `passes` takes options of its own, lists among them: caps by the bucket's number merge two of the
// three gathers, and another kind none.
// BUCKET-COUNT-2: comm.all_gather
// BUCKET-NOT: comm.all_gather
// NONE-COUNT-3: comm.all_gather
// Tests passes of other projects, nested ones with options too, and that the report covers them.
// NESTED: f: {{[0-9]+}} operations, 3 collectives
// NESTED: comm.all_gather
// NESTED-NOT: "dead"
// JSON: "name": "f"
// Tests that the pipeline leaves passes their own defaults, those of Inductor for its two passes, as the passes alone have
// them; and that an entry's own options come after the pipeline's.
// DEFAULTS: comm-reorder-preserving-peak-memory{{.*}}memory-budget-ratio=2.000000e-01{{.*}}use-runtime-estimates=false
// DEFAULTS: comm-sink-waits-preserving-peak-memory{{.*}}memory-budget-ratio=2.000000e-01{{.*}}swap-with-collectives=false{{.*}}use-runtime-estimates=false
// OWN: comm-sink-waits-preserving-peak-memory{{.*}}memory-budget-ratio=5.000000e-01{{.*}}swap-with-collectives=true

comm.group @dp #comm.iota<[1, 4]>

func.func @f(%a: tensor<4xf32>, %b: tensor<4xf32>, %c: tensor<4xf32>, %x: tensor<64xf32>) -> (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<64xf32>) {
  %y = comm.compute "first"(%x) : (tensor<64xf32>) -> tensor<64xf32>
  %dead = arith.constant {value.name = "dead"} 1 : i32
  %f0 = comm.all_gather %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<16xf32>>
  %f1 = comm.all_gather %b on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<16xf32>>
  %f2 = comm.all_gather %c on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w2 = comm.wait %f2 : !comm.future<tensor<16xf32>>
  %z = comm.compute "last"(%y) : (tensor<64xf32>) -> tensor<64xf32>
  return %w0, %w1, %w2, %z : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<64xf32>
}

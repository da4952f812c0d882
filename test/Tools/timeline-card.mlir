// RUN: comm-opt %s --comm-schedule --comm-timeline=%t.svg -o /dev/null 2> /dev/null
// RUN: comm-opt %s --comm-schedule --comm-timeline=%t.json -o /dev/null 2> /dev/null
// RUN: %python %S/Inputs/check_card.py %t.svg %t.json
// RUN: FileCheck %s --input-file=%t.svg
// RUN: comm-opt %s --pass-pipeline="builtin.module(comm-report{timeline-file=%t.one.svg table=false})" -o /dev/null && FileCheck %s --check-prefix=ONE --input-file=%t.one.svg
// RUN: echo "module {}" | comm-opt - --comm-timeline=%t.none.svg -o /dev/null 2> /dev/null && FileCheck %s --check-prefix=NONE --input-file=%t.none.svg

// Tests the picture of the block that takes longest: its bars and its memory are those of the trace, names are text and not
// markup, and the pass that measures once shows one order.
// CHECK: <svg {{.*}}width='1200' height='630'
// CHECK: class='title'{{.*}}>a&lt;b&amp;c: {{.*}} to {{.*}} %)</text>
// CHECK: class='facts'{{.*}}>predicted for h100-sxm; no schedule within the memory limit takes less than {{.*}}; the longest of 2 blocks</text>
// CHECK: class='head'{{.*}}>before: {{.*}}, peak
// CHECK: class='lane'{{.*}}>compute</text>
// CHECK: class='lane'{{.*}}@dp
// CHECK: class='head'{{.*}}>after: {{.*}}, peak
// CHECK: </svg>
// ONE: class='head'{{.*}}>as given: {{.*}}, peak
// ONE-NOT: class='head'
// NONE: >No block has collectives.</text>

comm.group @dp #comm.iota<[1, 8]>

func.func @"a<b&c"(%x: tensor<64xf32>, %w: tensor<8xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %b = comm.compute "before"(%x) {comm.cost = #comm.cost<time = 90000>} : (tensor<64xf32>) -> tensor<64xf32>
  %f = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 80000>} : (tensor<8xf32>) -> !comm.future<tensor<64xf32>>
  %g = comm.wait %f : !comm.future<tensor<64xf32>>
  %r = comm.compute "use"(%g, %b) {comm.cost = #comm.cost<time = 10000>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %r, %b : tensor<64xf32>, tensor<64xf32>
}

func.func @short(%w: tensor<8xf32>) -> tensor<64xf32> {
  %f = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> !comm.future<tensor<64xf32>>
  %g = comm.wait %f : !comm.future<tensor<64xf32>>
  return %g : tensor<64xf32>
}

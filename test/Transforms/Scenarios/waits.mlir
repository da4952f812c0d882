// RUN: comm-opt %s --comm-sink-waits -o %t && FileCheck %s --check-prefix=ALL --input-file=%t
// RUN: FileCheck %s --check-prefix=SINK --input-file=%t
// RUN: comm-opt %s --comm-raise | FileCheck %s --check-prefix=ALL
// RUN: comm-opt %s --comm-reorder-compute-for-overlap -o %t && FileCheck %s --check-prefix=ALL --input-file=%t
// RUN: FileCheck %s --check-prefix=FILL --input-file=%t
// RUN: comm-opt %s --comm-reorder-preserving-peak-memory="use-runtime-estimates=true" | FileCheck %s --check-prefix=ALL
// RUN: comm-opt %s --comm-sink-waits-preserving-peak-memory="use-runtime-estimates=true" -o %t && FileCheck %s --check-prefix=ALL --input-file=%t
// RUN: FileCheck %s --check-prefix=WAIT --input-file=%t
// RUN: comm-opt %s --comm-sink-waits-preserving-peak-memory="use-runtime-estimates=true swap-with-collectives=true" \
// RUN:   --remarks-filter="comm-sink.*" 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK
// RUN: comm-opt %s --comm-schedule="bucketing=false" | FileCheck %s --check-prefix=ALL

comm.group @dp #comm.iota<[1, 4]>

// Tests "a wait forces earlier ones": all waits of the group become ready at once, and each is there once afterwards.
// ALL-LABEL: func @forced_waits
// ALL-COUNT-3: comm.wait
// ALL-NOT: comm.wait
// ALL: return
// SINK-LABEL: func @forced_waits
// SINK: compute "free"
// SINK-NEXT: comm.wait
// SINK-NEXT: comm.wait
// SINK-NEXT: comm.wait
// SINK-NEXT: compute "all"
func.func @forced_waits(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %g = comm.all_reduce max %x on @dp {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %h = comm.all_reduce min %x on @dp {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %t = comm.wait %h : !comm.future<tensor<8xf32>>
  %s = comm.wait %g : !comm.future<tensor<8xf32>>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  %q = comm.compute "free"(%x) {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> tensor<8xf32>
  %a = comm.compute "all"(%r, %s, %t) {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %q, %a : tensor<8xf32>, tensor<8xf32>
}

// Tests "more compute than latency": a short collective behind long compute is exposed by nothing, and by nothing less
// than that.
// ALL-LABEL: func @never_below_zero
// REMARK: "'comm.wait' stayed; exposed 0 ns; already hidden"
func.func @never_below_zero(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 10>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %q = comm.compute "long"(%x) {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> tensor<8xf32>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  %p = comm.compute "longer"(%x) {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> tensor<8xf32>
  return %q, %r, %p : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// Tests "a reduce-scatter's wait sinks through the chain that accumulates its gradient": scale and add go along.
// ALL-LABEL: func @gradient_accumulation
// WAIT-LABEL: func @gradient_accumulation
// WAIT: comm.reduce_scatter
// WAIT-NEXT: compute "backward"
// WAIT-NEXT: comm.wait
// WAIT-NEXT: compute "scale"
// WAIT-NEXT: compute "add"
// REMARK: "'comm.wait' passed 1 operation and took 2 operations along; exposed 0 ns, was 300 ns; stopped by already hidden"
func.func @gradient_accumulation(%x: tensor<8xf32>, %grad: tensor<2xf32>) -> (tensor<8xf32>, tensor<2xf32>) {
  %f = comm.reduce_scatter sum %x on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> !comm.future<tensor<2xf32>>
  %r = comm.wait %f : !comm.future<tensor<2xf32>>
  %s = comm.compute "scale"(%r) {comm.cost = #comm.cost<time = 10>} : (tensor<2xf32>) -> tensor<2xf32>
  %a = comm.compute "add"(%grad, %s) {comm.cost = #comm.cost<time = 10>} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %b = comm.compute "backward"(%x) {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> tensor<8xf32>
  return %b, %a : tensor<8xf32>, tensor<2xf32>
}

// Tests "a coalesced start costs once": one start over two tensors of 300 ns in all has one wait, and 300 ns of compute
// behind it hide it.
// ALL-LABEL: func @coalesced
// FILL-LABEL: func @coalesced
// FILL: comm.all_gather %{{[^,]+}}, %
// FILL-NEXT: compute "first"
// FILL-NEXT: comm.wait
// FILL-NEXT: compute "use"
func.func @coalesced(%a: tensor<8xf32>, %b: tensor<8xf32>, %x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %f = comm.all_gather %a, %b on @dp {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>, tensor<8xf32>) -> !comm.future<tensor<32xf32>, tensor<32xf32>>
  %r, %s = comm.wait %f : !comm.future<tensor<32xf32>, tensor<32xf32>>
  %u = comm.compute "use"(%r, %s) {comm.cost = #comm.cost<time = 100>} : (tensor<32xf32>, tensor<32xf32>) -> tensor<8xf32>
  %q = comm.compute "first"(%x) {comm.cost = #comm.cost<time = 300>} : (tensor<8xf32>) -> tensor<8xf32>
  return %u, %q : tensor<8xf32>, tensor<8xf32>
}

// Tests that of two waits for one collective the first one counts: compute between them hides nothing any more, and the
// second one stays where it is.
// ALL-LABEL: func @second_wait
// ALL-COUNT-2: comm.wait
// ALL-NOT: comm.wait
// ALL: return
// REMARK: "'comm.wait' stayed; {{.*}}already hidden"
// REMARK: "'comm.wait' passed 1 operation;
func.func @second_wait(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 100>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  %p = comm.compute "between"(%x) {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> tensor<8xf32>
  %s = comm.wait %f : !comm.future<tensor<8xf32>>
  %q = comm.compute "behind"(%x) {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> tensor<8xf32>
  return %p, %q, %r, %s : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// Tests that a wait for a collective that was started elsewhere sinks too, and a start whose wait is elsewhere is kept.
// ALL-LABEL: func @across_functions
// SINK-LABEL: func @across_functions
// SINK: compute "free"
// SINK-NEXT: comm.wait
// SINK-NEXT: return
func.func @across_functions(%f: !comm.future<tensor<8xf32>>, %x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, !comm.future<tensor<8xf32>>) {
  %r = comm.wait %f : !comm.future<tensor<8xf32>>
  %g = comm.all_reduce sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %q = comm.compute "free"(%x) {comm.cost = #comm.cost<time = 1000>} : (tensor<8xf32>) -> tensor<8xf32>
  return %q, %r, %g : tensor<8xf32>, tensor<8xf32>, !comm.future<tensor<8xf32>>
}

// Tests that the trace of an example has both orders as processes, with an arrow from each collective to its wait: 5 before, and
// fewer after, because collectives are merged.
// RUN: comm-opt %commsched_src_root/docs/examples/two_layer_fsdp.mlir --reorder-comm-overlap --comm-timeline=%t.fsdp.json -o /dev/null 2> /dev/null
// RUN: %python %S/Inputs/check_trace.py %t.fsdp.json "step before=5" "step after=4"

// Tests exposed and hidden waits, a future with two waits, a wait that no computation follows, a collective that takes no time,
// and several streams.
// RUN: comm-opt %s --pass-pipeline="builtin.module(comm-report{timeline-file=%t.json table=false})" -o /dev/null
// RUN: %python %S/Inputs/check_trace.py %t.json "waits before=4" "waits after=4" "free before=0" "free after=0" "streams before=2" "streams after=2"

comm.group @dp #comm.iota<[1, 8]>
comm.group @self #comm.iota<[8, 1]>

// The first wait of %f is exposed, and the second one is hidden. The second wait of %h is hidden and no computation follows it, so it
// has no arrow.
func.func @waits(%x: tensor<64xf32>, %w: tensor<8xf32>, %v: tensor<8xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) {
  %f = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 80000>} : (tensor<8xf32>) -> !comm.future<tensor<64xf32>>
  %b = comm.compute "before"(%x) {comm.cost = #comm.cost<time = 50000>} : (tensor<64xf32>) -> tensor<64xf32>
  %g = comm.wait %f : !comm.future<tensor<64xf32>>
  %r = comm.compute "use"(%g, %b) {comm.cost = #comm.cost<time = 10000>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %g2 = comm.wait %f : !comm.future<tensor<64xf32>>
  %h = comm.all_reduce sum %r on @dp {comm.cost = #comm.cost<time = 30000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  %k = comm.all_gather %v on @dp {comm.cost = #comm.cost<time = 10000>} : (tensor<8xf32>) -> !comm.future<tensor<64xf32>>
  %s = comm.compute "also"(%g2) {comm.cost = #comm.cost<time = 10000>} : (tensor<64xf32>) -> tensor<64xf32>
  %i = comm.wait %h : !comm.future<tensor<64xf32>>
  %l = comm.wait %k : !comm.future<tensor<64xf32>>
  %m = comm.wait %h : !comm.future<tensor<64xf32>>
  return %s, %m, %l : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
}

func.func @free(%x: tensor<8xf32>) -> tensor<8xf32> {
  %f = comm.all_gather %x on @self {comm.cost = #comm.cost<time = 0>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %g = comm.wait %f : !comm.future<tensor<8xf32>>
  %r = comm.compute "use"(%g) {comm.cost = #comm.cost<time = 10000>} : (tensor<8xf32>) -> tensor<8xf32>
  return %r : tensor<8xf32>
}

func.func @streams(%x: tensor<64xf32>, %w: tensor<8xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %e = comm.record on 0 : !comm.event
  comm.await_event %e on 1 : !comm.event
  %f = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 80000>, comm.stream = 1} : (tensor<8xf32>) -> !comm.future<tensor<64xf32>>
  %h = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 20000>, comm.stream = 1} : (tensor<8xf32>) -> !comm.future<tensor<64xf32>>
  %g = comm.wait %f {comm.stream = 1} : !comm.future<tensor<64xf32>>
  %s = comm.compute "side"(%g) {comm.cost = #comm.cost<time = 20000>, comm.stream = 1} : (tensor<64xf32>) -> tensor<64xf32>
  %b = comm.compute "main"(%x) {comm.cost = #comm.cost<time = 90000>, comm.stream = 0} : (tensor<64xf32>) -> tensor<64xf32>
  %i = comm.wait %h {comm.stream = 0} : !comm.future<tensor<64xf32>>
  %j = comm.compute "last"(%i, %b) {comm.cost = #comm.cost<time = 20000>, comm.stream = 0} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %j, %s : tensor<64xf32>, tensor<64xf32>
}

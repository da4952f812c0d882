// RUN: comm-opt %s --split-input-file --comm-multi-stream="sync-overhead-ns=2000 gate=false issue-order=graph" --remarks-filter=comm-multi-stream -o /dev/null 2>&1 | FileCheck %s --check-prefix=SAYS
// RUN: comm-opt %s --split-input-file --comm-multi-stream="sync-overhead-ns=2000 gate=false issue-order=graph" | FileCheck %s
// RUN: comm-opt %s --split-input-file --comm-multi-stream="sync-overhead-ns=2000 gate=false issue-order=graph" | comm-opt --split-input-file --comm-verify -o /dev/null
// RUN: comm-opt %s --split-input-file --comm-multi-stream="sync-overhead-ns=0 gate=false" -o %t
// RUN: comm-opt %t --split-input-file --comm-raise --comm-sink-waits --comm-reorder-preserving-peak-memory --comm-multi-stream | diff %t -
// RUN: comm-opt %s --split-input-file --reorder-comm-overlap="passes=comm-multi-stream{sync-overhead-ns=2000 gate=false}" | FileCheck %s --check-prefix=STAGE
// RUN: comm-opt %s --split-input-file --reorder-comm-overlap="multi-stream=true effort=100" | FileCheck %s --check-prefix=STAGE
// RUN: not comm-opt %s --split-input-file --comm-multi-stream=comm-streams=1,-1 2>&1 | FileCheck %s --check-prefix=NUMBER
// RUN: not comm-opt %s --split-input-file --comm-multi-stream=compute-streams=64 2>&1 | FileCheck %s --check-prefix=LARGE
// RUN: not comm-opt %s --split-input-file --comm-multi-stream=min-cost-ns=0 2>&1 | FileCheck %s --check-prefix=COST
// RUN: not comm-opt %s --split-input-file --comm-multi-stream=sync-overhead-ns=3600000000001 2>&1 | FileCheck %s --check-prefix=SYNC
// NUMBER: error: comm-multi-stream: comm-streams: expected numbers from 0 to 63, got -1
// LARGE: error: comm-multi-stream: compute-streams: expected numbers from 0 to 63, got 64
// COST: error: comm-multi-stream: min-cost-ns=0: expected 1 to 3600000000000
// SYNC: error: comm-multi-stream: sync-overhead-ns=3600000000001: expected at most 3600000000000

// Tests the worked examples of the rule on one stream per role; 1 us is their unit. MultiStreamTest.cpp has the same.

comm.group @dp #comm.iota<[1, 4]>

// Tests that a gather overlaps with its neighbours. Its wait is what the reader waits for, so only the beginning of the
// block needs an event.
// SAYS: placed{{.*}}EndNs=10000, {{.*}}StartNs=0, Stream=0
// SAYS: placed{{.*}}EndNs=8000, Kind=all_gather, {{.*}}StartNs=0, Stream=1
// SAYS: placed{{.*}}EndNs=22000, {{.*}}StartNs=10000, Stream=0
// SAYS: placed{{.*}}EndNs=27000, {{.*}}StartNs=22000, Stream=0
// SAYS: [Passed] streams {{.*}}Awaits=1, AwaitsForMemory=0, Kind=block, LimitBytes={{[0-9]+}}, LimitingFactor=none, MakespanNsAfter=27000, MakespanNsBefore=27000, {{.*}}PredictedNs=27000, Records=1, {{.*}}SerialNs=35000, Streams=2
// CHECK-LABEL: func.func @gather_beside
// CHECK-NEXT: %[[E:.*]] = comm.record on 0
// CHECK-NEXT: comm.compute "a"
// CHECK-NEXT: comm.await_event %[[E]] on 1
// CHECK-NEXT: comm.all_gather {{.*}}comm.stream = 1
// CHECK-NOT: comm.stream
// CHECK-NOT: comm.await_event
// CHECK: return
func.func @gather_beside(%x: tensor<4xf32>) -> tensor<16xf32> {
  %a = comm.compute "a"(%x) {comm.cost = #comm.cost<time = 10000>} : (tensor<4xf32>) -> tensor<4xf32>
  %g = comm.all_gather %x on @dp {comm.cost = #comm.cost<time = 8000>} : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %b = comm.compute "b"(%a) {comm.cost = #comm.cost<time = 12000>} : (tensor<4xf32>) -> tensor<4xf32>
  %w = comm.wait %g : !comm.future<tensor<16xf32>>
  %c = comm.compute "c"(%b, %w) {comm.cost = #comm.cost<time = 5000>} : (tensor<4xf32>, tensor<16xf32>) -> tensor<16xf32>
  return %c : tensor<16xf32>
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that a hybrid runs on a compute stream and occupies both roles.
// SAYS: placed{{.*}}EndNs=10000, {{.*}}StartNs=0, Stream=0
// SAYS: placed{{.*}}EndNs=16000, {{.*}}StartNs=10000, Stream=0
// SAYS: placed{{.*}}EndNs=8000, Kind=all_gather, {{.*}}StartNs=0, Stream=1
// SAYS: [Passed] streams {{.*}}PredictedNs=16000, {{.*}}SerialNs=24000
// CHECK-LABEL: func.func @hybrid
// CHECK: comm.all_gather {{.*}}comm.stream = 1
func.func @hybrid(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<16xf32>) {
  %a = comm.compute "a"(%x) {comm.cost = #comm.cost<time = 10000>} : (tensor<4xf32>) -> tensor<4xf32>
  %h = comm.compute "h"(%x) {comm.hybrid = @dp, comm.cost = #comm.cost<time = 6000>} : (tensor<4xf32>) -> tensor<4xf32>
  %g = comm.all_gather %x on @dp {comm.cost = #comm.cost<time = 8000>} : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w = comm.wait %g : !comm.future<tensor<16xf32>>
  return %a, %h, %w : tensor<4xf32>, tensor<4xf32>, tensor<16xf32>
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that a computation that a start needs has one event, recorded directly after it, and that a dependence through a
// view, which is on no stream, is kept. MultiStreamSchedulePass loses it.
// CHECK-LABEL: func.func @through_a_view
// CHECK-NEXT: comm.compute "a"
// CHECK-NEXT: %[[E:.*]] = comm.record on 0
// CHECK-NEXT: comm.compute "view"
// CHECK-NEXT: comm.await_event %[[E]] on 1
// CHECK-NEXT: comm.all_reduce
// CHECK-NEXT: comm.all_gather
// CHECK-NOT: comm.await_event
// CHECK: return
func.func @through_a_view(%x: tensor<4xf32>) -> (tensor<2x2xf32>, tensor<16xf32>, tensor<4xf32>) {
  %a = comm.compute "a"(%x) {comm.cost = #comm.cost<time = 10000>} : (tensor<4xf32>) -> tensor<4xf32>
  %v = comm.compute "view"(%a) aliases [0] : (tensor<4xf32>) -> tensor<2x2xf32>
  %f = comm.all_reduce sum %v on @dp {comm.cost = #comm.cost<time = 8000>} : (tensor<2x2xf32>) -> !comm.future<tensor<2x2xf32>>
  %g = comm.all_gather %a on @dp {comm.cost = #comm.cost<time = 8000>} : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %b = comm.compute "b"(%x) {comm.cost = #comm.cost<time = 20000>} : (tensor<4xf32>) -> tensor<4xf32>
  %w = comm.wait %f : !comm.future<tensor<2x2xf32>>
  %z = comm.wait %g : !comm.future<tensor<16xf32>>
  return %w, %z, %b : tensor<2x2xf32>, tensor<16xf32>, tensor<4xf32>
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that the wait for a value that only another start reads is on that start's stream, so that stream 0 does not
// wait in between.
// CHECK-LABEL: func.func @collective_after_collective
// CHECK: comm.all_reduce {{.*}}comm.stream = 1
// CHECK-NEXT: comm.wait {{.*}}comm.stream = 1
// CHECK-NEXT: comm.all_gather {{.*}}comm.stream = 1
// CHECK-NEXT: comm.compute "b"
// CHECK-NEXT: %{{.*}} = comm.wait %{{[0-9]+}} : !comm.future
// STAGE-LABEL: func.func @collective_after_collective
// STAGE: comm.all_gather {{.*}}comm.stream = 1
func.func @collective_after_collective(%x: tensor<4xf32>) -> (tensor<16xf32>, tensor<4xf32>) {
  %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 8000>} : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w = comm.wait %f : !comm.future<tensor<4xf32>>
  %g = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 8000>} : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %b = comm.compute "b"(%x) {comm.cost = #comm.cost<time = 20000>} : (tensor<4xf32>) -> tensor<4xf32>
  %z = comm.wait %g : !comm.future<tensor<16xf32>>
  return %z, %b : tensor<16xf32>, tensor<4xf32>
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that a program with anchors keeps them.
// SAYS: [Missed] streams {{.*}}LimitingFactor="it has streams or events already
// CHECK-LABEL: func.func @has_anchors
// CHECK-NOT: comm.stream
func.func @has_anchors(%x: tensor<4xf32>) -> tensor<16xf32> {
  %e = comm.record on 0 : !comm.event
  %g = comm.all_gather %x on @dp {comm.cost = #comm.cost<time = 8000>} : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %a = comm.compute "a"(%x) {comm.cost = #comm.cost<time = 10000>} : (tensor<4xf32>) -> tensor<4xf32>
  %w = comm.wait %g : !comm.future<tensor<16xf32>>
  return %w : tensor<16xf32>
}

// -----

comm.group @dp #comm.iota<[1, 4]>

// Tests that messages are on a stream of their own, where no event is recorded, and that a wait is not on their stream.
// CHECK-LABEL: func.func @messages
// CHECK: comm.send {{.*}}comm.stream = 2
// CHECK: comm.all_reduce {{.*}}comm.stream = 1
// CHECK-NEXT: %[[W:.*]] = comm.wait %{{[0-9]+}} : !comm.future<tensor<4xf32>>
// CHECK-NEXT: %[[E:.*]] = comm.record on 0
// CHECK-NEXT: comm.await_event %[[E]] on 2
// CHECK-NEXT: comm.send %[[W]] {{.*}}comm.stream = 2
// CHECK-NEXT: comm.recv {{.*}}comm.stream = 2
// CHECK-NOT: comm.record on 2
// CHECK: return
func.func @messages(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a = comm.compute "a"(%x) {comm.cost = #comm.cost<time = 90000>} : (tensor<4xf32>) -> tensor<4xf32>
  %s = comm.send %x on @dp peer 1 tag 0 : (tensor<4xf32>) -> !comm.future<>
  %f = comm.all_reduce sum %x on @dp {comm.cost = #comm.cost<time = 8000>} : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w = comm.wait %f : !comm.future<tensor<4xf32>>
  %t = comm.send %w on @dp peer 1 tag 1 : (tensor<4xf32>) -> !comm.future<>
  %r = comm.recv on @dp peer 3 tag 0 : () -> !comm.future<tensor<4xf32>>
  comm.wait %s : !comm.future<>
  comm.wait %t : !comm.future<>
  %m = comm.wait %r : !comm.future<tensor<4xf32>>
  return %a, %m : tensor<4xf32>, tensor<4xf32>
}

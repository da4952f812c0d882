// RUN: comm-opt %s --comm-schedule | FileCheck %s
// RUN: comm-opt %s --comm-schedule="bucket-cap-bytes=1" | FileCheck %s --check-prefix=CAP
// RUN: comm-opt %s --reorder-comm-overlap="report-file=%t.json" -o /dev/null
// RUN: FileCheck %s --check-prefix=JSON --input-file=%t.json

comm.group @dp #comm.iota<[8, 8] from [8, 8] transpose [1, 0]>

// Tests that small gathers across nodes that are needed at once are merged without copies, and that a cap of a byte
// forbids it. Eight ranks on eight nodes pay a latency of tens of microseconds for each collective.
// CHECK-LABEL: func.func @gathers
// CHECK: %[[F:.*]] = comm.all_gather %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} on @dp
// CHECK: %[[W:.*]]:4 = comm.wait %[[F]]
// CHECK: comm.compute "use"(%[[W]]#{{[0-3]}}, %[[W]]#{{[0-3]}}, %[[W]]#{{[0-3]}}, %[[W]]#{{[0-3]}})
// CAP-LABEL: func.func @gathers
// CAP-COUNT-4: comm.all_gather
func.func @gathers(%a: tensor<1024xf32>, %b: tensor<1024xbf16>, %c: tensor<1024xbf16>, %d: tensor<1024xbf16>) -> tensor<8192xbf16> {
  %ah = comm.compute "cast"(%a) : (tensor<1024xf32>) -> tensor<1024xbf16>
  %fa = comm.all_gather %ah on @dp : (tensor<1024xbf16>) -> !comm.future<tensor<8192xbf16>>
  %ga = comm.wait %fa : !comm.future<tensor<8192xbf16>>
  %fb = comm.all_gather %b on @dp : (tensor<1024xbf16>) -> !comm.future<tensor<8192xbf16>>
  %gb = comm.wait %fb : !comm.future<tensor<8192xbf16>>
  %fc = comm.all_gather %c on @dp : (tensor<1024xbf16>) -> !comm.future<tensor<8192xbf16>>
  %gc = comm.wait %fc : !comm.future<tensor<8192xbf16>>
  %fd = comm.all_gather %d on @dp : (tensor<1024xbf16>) -> !comm.future<tensor<8192xbf16>>
  %gd = comm.wait %fd : !comm.future<tensor<8192xbf16>>
  %r = comm.compute "use"(%ga, %gb, %gc, %gd) {comm.cost = #comm.cost<time = 1000, workspace = 1048576>} : (tensor<8192xbf16>, tensor<8192xbf16>, tensor<8192xbf16>, tensor<8192xbf16>) -> tensor<8192xbf16>
  return %r : tensor<8192xbf16>
}

// JSON: "makespan_ns"
// JSON: "traffic"

// RUN: comm-opt %s --comm-schedule="bucketing=false" | FileCheck %s
// RUN: comm-opt %s --comm-schedule | FileCheck %s --check-prefix=MERGED
// RUN: comm-opt %s --comm-schedule="bucket-cap-bytes=40000" | FileCheck %s --check-prefix=CAP
// RUN: comm-opt %s --comm-schedule="collective-order=program" | FileCheck %s --check-prefix=MERGED
// RUN: comm-opt %s --comm-schedule="collective-order=group" | FileCheck %s --check-prefix=MERGED
// RUN: comm-opt %s --comm-schedule -o %t.several && comm-opt %s --comm-schedule --mlir-disable-threading -o %t.one
// RUN: diff %t.several %t.one
// RUN: comm-opt %s --comm-schedule="bucketing=false" --remarks-filter=comm-schedule 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK
// RUN: comm-opt %s --comm-schedule --remarks-filter=comm-schedule 2>&1 >/dev/null | FileCheck %s --check-prefix=PARTNERS

comm.group @dp #comm.iota<[8, 8] from [8, 8] transpose [1, 0]>

// Tests that pinned operations keep their order among each other: without the pins the gather would come first.
// CHECK-LABEL: func.func @pinned
// CHECK: comm.compute "before"
// CHECK: comm.all_gather
// CHECK: comm.compute "beside"
// REMARK: remark: [Passed] schedule | Category:comm-schedule | ExposedNsAfter=0, ExposedNsBefore=80000, Kind=all_gather, LimitingFactor="already hidden", PositionAfter=1, PositionBefore=2
func.func @pinned(%x: tensor<64xf32>, %w: tensor<16xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %b = comm.compute "before"(%x) {comm.pinned, comm.cost = #comm.cost<time = 90000>} : (tensor<64xf32>) -> tensor<64xf32>
  %c = comm.compute "beside"(%x) {comm.cost = #comm.cost<time = 90000>} : (tensor<64xf32>) -> tensor<64xf32>
  %f = comm.all_gather %w on @dp {comm.pinned, comm.cost = #comm.cost<time = 80000>} : (tensor<16xf32>) -> !comm.future<tensor<128xf32>>
  %g = comm.wait %f : !comm.future<tensor<128xf32>>
  %r = comm.compute "use"(%g, %b) {comm.cost = #comm.cost<time = 10>} : (tensor<128xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %r, %c : tensor<64xf32>, tensor<64xf32>
}

// Tests that what a future that came in brings is waited for, and that a collective whose future leaves starts early.
// CHECK-LABEL: func.func @in_flight
// CHECK: comm.all_gather
// CHECK: comm.compute "own"
// CHECK: comm.compute "use"
func.func @in_flight(%in: !comm.future<tensor<64xf32>>, %x: tensor<64xf32>, %w: tensor<16xf32>) -> (tensor<64xf32>, !comm.future<tensor<128xf32>>) {
  %g = comm.wait %in : !comm.future<tensor<64xf32>>
  %first = comm.compute "first"(%x) {comm.cost = #comm.cost<time = 10, workspace = 4096>} : (tensor<64xf32>) -> tensor<64xf32>
  %own = comm.compute "own"(%first) {comm.cost = #comm.cost<time = 50000>} : (tensor<64xf32>) -> tensor<64xf32>
  %r = comm.compute "use"(%g, %own) {comm.cost = #comm.cost<time = 10>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %out = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 80000>} : (tensor<16xf32>) -> !comm.future<tensor<128xf32>>
  return %r, %out : tensor<64xf32>, !comm.future<tensor<128xf32>>
}

// Tests that the memory of a donated argument is used again: within the given peak, the gather fits once "reads" has
// freed its argument, and not before.
// CHECK-LABEL: func.func @donated
// CHECK: comm.compute "reads"
// CHECK: comm.all_gather
// CHECK: comm.compute "large"
func.func @donated(%x: tensor<4096xf32> {comm.donated}, %w: tensor<512xf32>) -> tensor<4096xf32> {
  %a = comm.compute "reads"(%x) {comm.cost = #comm.cost<time = 50000, workspace = 1000>} : (tensor<4096xf32>) -> tensor<16xf32>
  %b = comm.compute "large"(%a) {comm.cost = #comm.cost<time = 90000, workspace = 100>} : (tensor<16xf32>) -> tensor<16xf32>
  %f = comm.all_gather %w on @dp {comm.cost = #comm.cost<time = 80000>} : (tensor<512xf32>) -> !comm.future<tensor<4096xf32>>
  %g = comm.wait %f : !comm.future<tensor<4096xf32>>
  %r = comm.compute "use"(%g, %b) aliases [0] {comm.cost = #comm.cost<time = 10>} : (tensor<4096xf32>, tensor<16xf32>) -> tensor<4096xf32>
  return %r : tensor<4096xf32>
}

// Tests that gathers that follow each other are merged where all collectives keep their order, and within a
// cap: four of 16384 bytes each are one bucket, or two under a cap of 40000.
// MERGED-LABEL: func.func @neighbours
// MERGED-COUNT-1: comm.all_gather
// MERGED-NOT: comm.all_gather
// PARTNERS: BucketForm=coalesced, BucketSize=4, {{.*}}MergedWith="{{[^,]*}}, {{[^,]*}}, {{[^,]*}}", PositionAfter
// CAP-LABEL: func.func @neighbours
// CAP-COUNT-2: comm.all_gather
// CAP-NOT: comm.all_gather
func.func @neighbours(%a: tensor<1024xbf16>, %b: tensor<1024xbf16>, %c: tensor<1024xbf16>, %d: tensor<1024xbf16>) -> tensor<8192xbf16> {
  %fa = comm.all_gather %a on @dp : (tensor<1024xbf16>) -> !comm.future<tensor<8192xbf16>>
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

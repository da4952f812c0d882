// RUN: comm-opt %s --comm-move-casts --remarks-filter=comm-move-casts --verify-diagnostics | FileCheck %s

comm.group @dp #comm.iota<[2, 8]>
comm.group @tp #comm.iota<[8, 2]>

// Tests a gather that is narrowed behind its wait: the shard is narrowed in its place.
// CHECK-LABEL: func @narrow_first
// CHECK-NEXT: %[[N:.*]] = arith.truncf %arg0 : tensor<512x1024xf32> to tensor<512x1024xbf16>
// CHECK-NEXT: %[[F:.*]] = comm.all_gather %[[N]] on @dp : (tensor<512x1024xbf16>) -> !comm.future<tensor<4096x1024xbf16>>
// CHECK-NEXT: %[[W:.*]] = comm.wait %[[F]] : !comm.future<tensor<4096x1024xbf16>>
// CHECK-NEXT: return %[[W]]
func.func @narrow_first(%x: tensor<512x1024xf32>) -> tensor<4096x1024xbf16> {
  // expected-remark @+1 {{carries 8388608 in place of 16777216 bytes}}
  %f = comm.all_gather %x on @dp : (tensor<512x1024xf32>) -> !comm.future<tensor<4096x1024xf32>>
  %w = comm.wait %f : !comm.future<tensor<4096x1024xf32>>
  %n = arith.truncf %w : tensor<4096x1024xf32> to tensor<4096x1024xbf16>
  return %n : tensor<4096x1024xbf16>
}

// Tests an exchange that is widened in front of its start, and a cast of a front end, whose cost follows its size.
// CHECK-LABEL: func @widen_last
// CHECK-NEXT: %[[F:.*]] = comm.all_to_all %arg0
// CHECK-NEXT: %[[W:.*]] = comm.wait %[[F]] : !comm.future<tensor<4096x1024xbf16>>
// CHECK-NEXT: comm.compute "cast"(%[[W]]) {comm.cost = #comm.cost<bytes = 24>} : (tensor<4096x1024xbf16>) -> tensor<4096x1024xf32>
func.func @widen_last(%x: tensor<4096x1024xbf16>) -> tensor<4096x1024xf32> {
  %c = comm.compute "cast"(%x) {comm.cost = #comm.cost<bytes = 24>} : (tensor<4096x1024xbf16>) -> tensor<4096x1024xf32>
  // expected-remark @+1 {{carries 8388608 in place of 16777216 bytes}}
  %f = comm.all_to_all %c on @dp : (tensor<4096x1024xf32>) -> !comm.future<tensor<4096x1024xf32>>
  %w = comm.wait %f : !comm.future<tensor<4096x1024xf32>>
  return %w : tensor<4096x1024xf32>
}

// Tests that a cast to a wider type stays in front of a gather on links that are faster than memory: behind it, it would
// write all of the gathered value.
// CHECK-LABEL: func @costs_more
// CHECK-NEXT: arith.extf %arg0
func.func @costs_more(%x: tensor<8x1024xbf16>) -> tensor<64x1024xf32> {
  %c = arith.extf %x {comm.cost = #comm.cost<time = 1000000>} : tensor<8x1024xbf16> to tensor<8x1024xf32>
  // expected-remark @+1 {{LimitingFactor="the cast would take longer than the collective saves"}}
  %f = comm.all_gather %c on @dp : (tensor<8x1024xf32>) -> !comm.future<tensor<64x1024xf32>>
  %w = comm.wait %f : !comm.future<tensor<64x1024xf32>>
  return %w : tensor<64x1024xf32>
}

// Tests two gathers in a row, and a bucket whose members have casts of their own.
// CHECK-LABEL: func @chain
// CHECK-NEXT: arith.truncf %arg0 : tensor<64x1024xf32>
// CHECK-NEXT: comm.all_gather {{.*}} on @tp : (tensor<64x1024xbf16>)
// CHECK-NEXT: comm.wait
// CHECK-NEXT: comm.all_gather {{.*}} on @dp : (tensor<128x1024xbf16>)
func.func @chain(%x: tensor<64x1024xf32>) -> tensor<1024x1024xbf16> {
  // expected-remark @+1 {{carries}}
  %f = comm.all_gather %x on @tp : (tensor<64x1024xf32>) -> !comm.future<tensor<128x1024xf32>>
  %w = comm.wait %f : !comm.future<tensor<128x1024xf32>>
  // expected-remark @+1 {{carries}}
  %g = comm.all_gather %w on @dp : (tensor<128x1024xf32>) -> !comm.future<tensor<1024x1024xf32>>
  %v = comm.wait %g : !comm.future<tensor<1024x1024xf32>>
  %n = arith.truncf %v : tensor<1024x1024xf32> to tensor<1024x1024xbf16>
  return %n : tensor<1024x1024xbf16>
}

// CHECK-LABEL: func @bucket
// CHECK-NEXT: %[[F:.*]] = comm.all_gather %{{.*}}, %{{.*}} on @dp : (tensor<64x1024xbf16>, tensor<8x1024xbf16>)
// CHECK-NEXT: %[[W:.*]]:2 = comm.wait %[[F]]
// CHECK-NEXT: arith.extf %[[W]]#0 : tensor<512x1024xbf16>
// CHECK-NEXT: arith.extf %[[W]]#1 : tensor<64x1024xbf16>
func.func @bucket(%x: tensor<64x1024xbf16>, %y: tensor<8x1024xbf16>) -> (tensor<512x1024xf32>, tensor<64x1024xf32>) {
  %c = arith.extf %x : tensor<64x1024xbf16> to tensor<64x1024xf32>
  %d = arith.extf %y : tensor<8x1024xbf16> to tensor<8x1024xf32>
  // expected-remark @+1 {{carries 1179648 in place of 2359296 bytes}}
  %f = comm.all_gather %c, %d on @dp : (tensor<64x1024xf32>, tensor<8x1024xf32>) -> !comm.future<tensor<512x1024xf32>, tensor<64x1024xf32>>
  %w:2 = comm.wait %f : !comm.future<tensor<512x1024xf32>, tensor<64x1024xf32>>
  return %w#0, %w#1 : tensor<512x1024xf32>, tensor<64x1024xf32>
}

// Tests that a maximum is exact, and that sums and products stay.
// CHECK-LABEL: func @reductions
// CHECK: comm.all_reduce max {{.*}} : (tensor<64x1024xbf16>)
// CHECK: comm.all_reduce sum {{.*}} : (tensor<64x1024xf32>)
// CHECK: comm.all_reduce product {{.*}} : (tensor<64x1024xf32>)
func.func @reductions(%x: tensor<64x1024xbf16>, %y: tensor<64x1024xbf16>, %z: tensor<64x1024xbf16>) -> (tensor<64x1024xf32>, tensor<64x1024xf32>, tensor<64x1024xf32>) {
  %a = arith.extf %x : tensor<64x1024xbf16> to tensor<64x1024xf32>
  // expected-remark @+1 {{carries}}
  %f = comm.all_reduce max %a on @dp : (tensor<64x1024xf32>) -> !comm.future<tensor<64x1024xf32>>
  %u = comm.wait %f : !comm.future<tensor<64x1024xf32>>
  %b = arith.extf %y : tensor<64x1024xbf16> to tensor<64x1024xf32>
  // expected-remark @+1 {{the sum would be computed in fewer bits, which numerics=reduced-precision-sums allows}}
  %g = comm.all_reduce sum %b on @dp : (tensor<64x1024xf32>) -> !comm.future<tensor<64x1024xf32>>
  %v = comm.wait %g : !comm.future<tensor<64x1024xf32>>
  %c = arith.extf %z : tensor<64x1024xbf16> to tensor<64x1024xf32>
  // expected-remark @+1 {{LimitingFactor="the collective computes with its elements, which would round differently"}}
  %h = comm.all_reduce product %c on @dp : (tensor<64x1024xf32>) -> !comm.future<tensor<64x1024xf32>>
  %w = comm.wait %h : !comm.future<tensor<64x1024xf32>>
  return %u, %v, %w : tensor<64x1024xf32>, tensor<64x1024xf32>, tensor<64x1024xf32>
}

// Tests what stands in the way.
// CHECK-LABEL: func @obstacles
// CHECK-COUNT-3: comm.all_gather {{.*}}xf32>) ->
func.func @obstacles(%x: tensor<64x1024xbf16>, %y: tensor<64x1024xbf16>, %z: tensor<64x1024xbf16>) -> (tensor<512x1024xf32>, tensor<512x1024xf32>, tensor<512x1024xf32>, tensor<64x1024xf32>) {
  %a = arith.extf %x : tensor<64x1024xbf16> to tensor<64x1024xf32>
  // expected-remark @+1 {{LimitingFactor="the result of the cast has other readers"}}
  %f = comm.all_gather %a on @dp : (tensor<64x1024xf32>) -> !comm.future<tensor<512x1024xf32>>
  %u = comm.wait %f : !comm.future<tensor<512x1024xf32>>
  %b = arith.extf %y : tensor<64x1024xbf16> to tensor<64x1024xf32>
  // expected-remark @+1 {{LimitingFactor="the cost of the collective is given, and holds for its bytes as they are"}}
  %g = comm.all_gather %b on @dp {comm.cost = #comm.cost<time = 7>} : (tensor<64x1024xf32>) -> !comm.future<tensor<512x1024xf32>>
  %v = comm.wait %g : !comm.future<tensor<512x1024xf32>>
  %c = comm.compute "cast"(%z) : (tensor<64x1024xbf16>) -> tensor<64x1024xf32>
  // expected-remark @+1 {{LimitingFactor="the program writes the storage of a value that the cast reads or makes"}}
  %h = comm.all_gather %c on @dp : (tensor<64x1024xf32>) -> !comm.future<tensor<512x1024xf32>>
  comm.compute "zero_"(%z) mutates [0] : (tensor<64x1024xbf16>) -> ()
  %w = comm.wait %h : !comm.future<tensor<512x1024xf32>>
  return %u, %v, %w, %a : tensor<512x1024xf32>, tensor<512x1024xf32>, tensor<512x1024xf32>, tensor<64x1024xf32>
}

// Tests that casts to fewer bits stay behind minima, where small numbers of both signs would become zeros, and that casts with a
// place of their own keep it.
// CHECK-LABEL: func @places
// CHECK: comm.all_reduce min %arg0 on @dp : (tensor<64x1024xf32>)
// CHECK: arith.extf %arg1 {comm.unit = 0 : i64}
func.func @places(%x: tensor<64x1024xf32>, %y: tensor<64x1024xbf16>) -> (tensor<64x1024xf16>, tensor<512x1024xf32>) {
  // expected-remark @+1 {{LimitingFactor="the collective computes with its elements, which would round differently"}}
  %f = comm.all_reduce min %x on @dp : (tensor<64x1024xf32>) -> !comm.future<tensor<64x1024xf32>>
  %u = comm.wait %f : !comm.future<tensor<64x1024xf32>>
  %a = arith.truncf %u : tensor<64x1024xf32> to tensor<64x1024xf16>
  %b = arith.extf %y {comm.unit = 0 : i64} : tensor<64x1024xbf16> to tensor<64x1024xf32>
  // expected-remark @+1 {{LimitingFactor="the cast has 'comm.unit', which gives it a place"}}
  %g = comm.all_gather %b on @dp : (tensor<64x1024xf32>) -> !comm.future<tensor<512x1024xf32>>
  %v = comm.wait %g : !comm.future<tensor<512x1024xf32>>
  return %a, %v : tensor<64x1024xf16>, tensor<512x1024xf32>
}

// Tests futures with several waits, and dynamic sizes.
// CHECK-LABEL: func @several_waits
// CHECK: comm.all_gather %arg0 on @dp : (tensor<64x1024xf32>)
// CHECK: comm.all_gather %{{.*}} on @dp : (tensor<64x1024xf32>)
// CHECK: comm.all_gather %{{.*}} on @dp : (tensor<?x1024xf32>)
func.func @several_waits(%x: tensor<64x1024xf32>, %y: tensor<64x1024xbf16>, %z: tensor<?x1024xbf16>) -> (tensor<512x1024xbf16>, tensor<512x1024xf32>, tensor<512x1024xf32>, tensor<?x1024xf32>, !comm.future<tensor<512x1024xf32>>) {
  // expected-remark @+1 {{LimitingFactor="the future has several waits or other users"}}
  %f = comm.all_gather %x on @dp : (tensor<64x1024xf32>) -> !comm.future<tensor<512x1024xf32>>
  %u = comm.wait %f : !comm.future<tensor<512x1024xf32>>
  %n = arith.truncf %u : tensor<512x1024xf32> to tensor<512x1024xbf16>
  %v = comm.wait %f : !comm.future<tensor<512x1024xf32>>
  %a = arith.extf %y : tensor<64x1024xbf16> to tensor<64x1024xf32>
  // expected-remark @+1 {{LimitingFactor="the future has several waits or other users"}}
  %g = comm.all_gather %a on @dp : (tensor<64x1024xf32>) -> !comm.future<tensor<512x1024xf32>>
  %w = comm.wait %g : !comm.future<tensor<512x1024xf32>>
  %b = arith.extf %z : tensor<?x1024xbf16> to tensor<?x1024xf32>
  // expected-remark @+1 {{LimitingFactor="a size is dynamic"}}
  %h = comm.all_gather %b on @dp : (tensor<?x1024xf32>) -> !comm.future<tensor<?x1024xf32>>
  %d = comm.wait %h : !comm.future<tensor<?x1024xf32>>
  return %n, %v, %w, %d, %g : tensor<512x1024xbf16>, tensor<512x1024xf32>, tensor<512x1024xf32>, tensor<?x1024xf32>, !comm.future<tensor<512x1024xf32>>
}

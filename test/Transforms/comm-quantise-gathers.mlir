// RUN: comm-opt %s --comm-quantise-gathers --remarks-filter=comm-quantise-gathers --verify-diagnostics -o %t.mlir
// RUN: FileCheck %s --input-file=%t.mlir
// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-quantise-gathers,comm-schedule" --comm-report=%t.json --comm-certificate=%t.cert -o /dev/null 2>&1 | FileCheck %s --check-prefix=TABLE
// RUN: FileCheck %s --check-prefix=JSON --input-file=%t.json
// RUN: env PYTHONPATH=%commsched_src_root/python %python -m commsched_verify %t.cert | FileCheck %s --check-prefix=PROVEN
// RUN: comm-opt %s --comm-quantise-gathers="min-bytes=30MB" --remarks-filter=comm-quantise-gathers -o %t.large.mlir 2>&1 | FileCheck %s --check-prefix=SMALL
// RUN: FileCheck %s --check-prefix=LARGE --input-file=%t.large.mlir
// SMALL-DAG: unchanged: 25165824 gathered bytes are fewer than min-bytes, 30000000
// SMALL-DAG: unchanged: 32768 gathered bytes are fewer than min-bytes, 30000000
// LARGE: func @parameters{{.*}}gathers = 1 : i64
// LARGE: func @dimensions{{.*}}gathers = 1 : i64
// LARGE: comm.all_gather {{.*}} : (tensor<1048576xbf16>, tensor<524288xf16>)

// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-move-casts{numerics=reduced-precision-sums},comm-quantise-gathers,comm-report" -o %t.both.mlir 2>&1 | FileCheck %s --check-prefix=TEXT
// RUN: FileCheck %s --check-prefix=BOTH --input-file=%t.both.mlir

// Nothing does it unasked.
// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-move-casts{numerics=reduced-precision-sums},comm-schedule" 2>/dev/null | FileCheck %s --check-prefix=DEFAULT --implicit-check-not=129xi8 --implicit-check-not=quantised-gathers
// DEFAULT: comm.all_gather

comm.group @dp #comm.iota<[1, 8]>

// Tests a gather along the first dimension: blocks are rows of 129 bytes, and no byte is copied but by the two kernels.
// CHECK-DAG: #[[GIVEN:.*]] = affine_map<(d0, d1) -> (d0, d1 mod 128)>
// CHECK-DAG: #[[SCALES:.*]] = affine_map<(d0, d1, d2) -> (d1, d0 * 8192 + d2 floordiv 128, 0)>
// CHECK-LABEL: func @parameters
// CHECK-SAME: attributes {comm.numerics = {class = "quantised-gathers", gathers = 1 : i64}}
// CHECK: %[[BLOCKS:.*]] = tensor.expand_shape {{.*}} output_shape [8192, 128] : tensor<1048576xf32> into tensor<8192x128xf32>
// CHECK: %[[LARGEST:.*]] = linalg.generic {{.*}} ins(%[[BLOCKS]] : tensor<8192x128xf32>) outs({{.*}} : tensor<8192xi32>)
// CHECK: %[[PACKED:.*]] = linalg.generic {indexing_maps = [#[[GIVEN]], {{.*}} ins(%[[BLOCKS]], %[[LARGEST]] : tensor<8192x128xf32>, tensor<8192xi32>) outs({{.*}} : tensor<8192x129xi8>)
// CHECK: %[[F:.*]] = comm.all_gather %[[PACKED]] on @dp {comm.pinned} : (tensor<8192x129xi8>) -> !comm.future<tensor<65536x129xi8>>
// CHECK-NEXT: comm.compute "other"
// CHECK-NEXT: %[[W:.*]] = comm.wait %[[F]]
// CHECK-NEXT: %[[ROWS:.*]] = tensor.expand_shape %[[W]] {{.*}} into tensor<8x8192x129xi8>
// CHECK: tensor.extract_slice %[[ROWS]][0, 0, 0] [8, 8192, 128]
// CHECK: tensor.extract_slice %[[ROWS]][0, 0, 128] [8, 8192, 1]
// CHECK: linalg.generic {indexing_maps = [{{.*}}, #[[SCALES]], {{.*}} outs({{.*}} : tensor<1x8x1048576xf32>)
// CHECK: %[[FULL:.*]] = tensor.expand_shape {{.*}} into tensor<8192x1024xf32>
// CHECK: comm.compute "use"(%[[FULL]])
// TABLE: numerics {{.*}}quantised-gathers 1 gather in 8 bits; an element differs by at most 0.0625 of its magnitude, or 4.4E-06 of the largest in its block
// JSON: "numerics": {
// JSON-NEXT: "class": "quantised-gathers",
// JSON-NEXT: "gather_error": {
// JSON-NEXT: "absolute": 1.14{{[0-9]+}}e-41,
// JSON-NEXT: "of_block": 4.35{{[0-9]+}}e-06,
// JSON-NEXT: "of_element": 0.0625
// JSON-NEXT: },
// JSON-NEXT: "gathers": 1
func.func @parameters(%x: tensor<1024x1024xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // expected-remark @+1 {{carries 8454144 in place of 33554432 bytes: numbers of 8 bits, in blocks of 128; an element differs by at most 0.0625 of its magnitude, or 4.4E-06 of the largest in its block}}
  %f = comm.all_gather %x on @dp {comm.pinned} : (tensor<1024x1024xf32>) -> !comm.future<tensor<8192x1024xf32>>
  %a = comm.compute "other"(%x) : (tensor<1024x1024xf32>) -> tensor<4xf32>
  %w = comm.wait %f : !comm.future<tensor<8192x1024xf32>>
  %b = comm.compute "use"(%w) : (tensor<8192x1024xf32>) -> tensor<4xf32>
  return %a, %b : tensor<4xf32>, tensor<4xf32>
}

// Tests a gather along the second dimension whose last block is short, and one of several tensors.
// CHECK-LABEL: func @dimensions
// CHECK-SAME: comm.numerics = {class = "quantised-gathers", gathers = 2 : i64}
// CHECK: tensor.pad {{.*}} low[0] high[125]
// CHECK: comm.all_gather {{.*}} on @dp : (tensor<24625x129xi8>) -> !comm.future<tensor<197000x129xi8>>
// CHECK: linalg.generic {{.*}} outs({{.*}} : tensor<3x8x1050625xbf16>)
// CHECK: tensor.expand_shape {{.*}} into tensor<3x8200x1025xbf16>
// CHECK: comm.all_gather %{{.*}}, %{{.*}} on @dp : (tensor<8192x129xi8>, tensor<4096x129xi8>)
func.func @dimensions(%x: tensor<3x1025x1025xbf16>, %y: tensor<1048576xbf16>, %z: tensor<524288xf16>) -> (tensor<3x8200x1025xbf16>, tensor<8388608xbf16>, tensor<4194304xf16>) {
  // expected-remark @+1 {{carries}}
  %f = comm.all_gather %x on @dp dim 1 : (tensor<3x1025x1025xbf16>) -> !comm.future<tensor<3x8200x1025xbf16>>
  %w = comm.wait %f : !comm.future<tensor<3x8200x1025xbf16>>
  // expected-remark @+1 {{carries 12681216 in place of 25165824 bytes}}
  %g = comm.all_gather %y, %z on @dp : (tensor<1048576xbf16>, tensor<524288xf16>) -> !comm.future<tensor<8388608xbf16>, tensor<4194304xf16>>
  %v:2 = comm.wait %g : !comm.future<tensor<8388608xbf16>, tensor<4194304xf16>>
  return %w, %v#0, %v#1 : tensor<3x8200x1025xbf16>, tensor<8388608xbf16>, tensor<4194304xf16>
}

// Tests element types that stay, and gathers that are too small.
// CHECK-LABEL: func @stay
// CHECK-NOT: comm.numerics
// CHECK-NOT: linalg
func.func @stay(%a: tensor<1024x1024xi32>, %b: tensor<1024x1024xf8E4M3FN>, %c: tensor<1024x1024xf64>, %d: tensor<64xbf16>, %e: tensor<1024xf32>, %n: tensor<?x1024xf32>) {
  // expected-remark @+1 {{LimitingFactor="elements of i32 are not quantised, only those of f32, f16 and bf16"}}
  %0 = comm.all_gather %a on @dp : (tensor<1024x1024xi32>) -> !comm.future<tensor<8192x1024xi32>>
  %u = comm.wait %0 : !comm.future<tensor<8192x1024xi32>>
  // expected-remark @+1 {{LimitingFactor="the gather carries elements of at most 8 bits already"}}
  %1 = comm.all_gather %b on @dp : (tensor<1024x1024xf8E4M3FN>) -> !comm.future<tensor<8192x1024xf8E4M3FN>>
  %v = comm.wait %1 : !comm.future<tensor<8192x1024xf8E4M3FN>>
  // expected-remark @+1 {{LimitingFactor="elements of f64 are not quantised, only those of f32, f16 and bf16"}}
  %2 = comm.all_gather %c on @dp : (tensor<1024x1024xf64>) -> !comm.future<tensor<8192x1024xf64>>
  %w = comm.wait %2 : !comm.future<tensor<8192x1024xf64>>
  // expected-remark @+1 {{LimitingFactor="the gather is too small to save bytes"}}
  %3 = comm.all_gather %d on @dp : (tensor<64xbf16>) -> !comm.future<tensor<512xbf16>>
  %x = comm.wait %3 : !comm.future<tensor<512xbf16>>
  // expected-remark @+1 {{LimitingFactor="the kernels would take longer than the gather saves"}}
  %4 = comm.all_gather %e on @dp : (tensor<1024xf32>) -> !comm.future<tensor<8192xf32>>
  %y = comm.wait %4 : !comm.future<tensor<8192xf32>>
  // expected-remark @+1 {{LimitingFactor="a size is dynamic"}}
  %5 = comm.all_gather %n on @dp : (tensor<?x1024xf32>) -> !comm.future<tensor<?x1024xf32>>
  %z = comm.wait %5 : !comm.future<tensor<?x1024xf32>>
  return
}

// Tests that sums in fewer bits and gathers in 8 bits add up, in the class that includes both.
// CHECK-LABEL: func @step
// BOTH-LABEL: func @step
// BOTH-SAME: comm.numerics = {class = "quantised-gathers", collectives = 1 : i64, error = 0.028{{[0-9]+}} : f64, gathers = 1 : i64}
// TEXT: quantised-gathers 1 sum in fewer bits; an element differs by at most 0.0281 of the sum of its terms' magnitudes; 1 gather in 8 bits; an element
func.func @step(%x: tensor<1048576xf32>, %y: tensor<8388608xbf16>) -> (tensor<8388608xf32>, tensor<1048576xf32>) {
  // expected-remark @+1 {{carries}}
  %f = comm.all_gather %x on @dp : (tensor<1048576xf32>) -> !comm.future<tensor<8388608xf32>>
  %v = comm.wait %f : !comm.future<tensor<8388608xf32>>
  %c = arith.extf %y : tensor<8388608xbf16> to tensor<8388608xf32>
  %g = comm.reduce_scatter sum %c on @dp : (tensor<8388608xf32>) -> !comm.future<tensor<1048576xf32>>
  %w = comm.wait %g : !comm.future<tensor<1048576xf32>>
  return %v, %w : tensor<8388608xf32>, tensor<1048576xf32>
}

// PROVEN: valid; blocks: 4
// PROVEN: made of {{[0-9a-f]+}}; results: quantised-gathers{{$}}

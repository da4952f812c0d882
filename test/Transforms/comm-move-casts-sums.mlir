// RUN: comm-opt %s --comm-move-casts=numerics=reduced-precision-sums --remarks-filter=comm-move-casts --verify-diagnostics -o %t.mlir
// RUN: FileCheck %s --input-file=%t.mlir
// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-move-casts{numerics=reduced-precision-sums},comm-schedule" --comm-report=%t.json -o /dev/null 2>&1 | FileCheck %s --check-prefix=TABLE
// RUN: FileCheck %s --check-prefix=JSON --input-file=%t.json
// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-move-casts{numerics=reduced-precision-sums},comm-schedule" --comm-certificate=%t.cert -o /dev/null 2>/dev/null
// RUN: env PYTHONPATH=%commsched_src_root/python %python -m commsched_verify %t.cert | FileCheck %s --check-prefix=PROVEN
// RUN: not comm-opt %s --comm-move-casts=numerics=wild 2>&1 | FileCheck %s --check-prefix=UNKNOWN

comm.group @dp #comm.iota<[1, 8]>
comm.group @many #comm.iota<[1, 1024]>

// Tests gradients that are summed in f32 although they are bf16: 7 additions, each of which rounds by 2^-8 of its result at most.
// 7/256 / (1 - 7/256) = 0.0281, and 4e-7 for the sum in f32.
// CHECK-LABEL: func @gradients
// CHECK-SAME: attributes {comm.numerics = {class = "reduced-precision-sums", collectives = 2 : i64, error = 0.028{{[0-9]+}} : f64}}
// CHECK-NEXT: comm.reduce_scatter sum %arg0 on @dp : (tensor<4096x1024xbf16>) -> !comm.future<tensor<512x1024xbf16>>
// CHECK-NEXT: %[[W:.*]] = comm.wait
// CHECK-NEXT: arith.extf %[[W]] : tensor<512x1024xbf16> to tensor<512x1024xf32>
// CHECK: comm.all_reduce sum %arg1 on @dp : (tensor<16x1024xf16>)
// TABLE: numerics {{.*}}reduced-precision-sums 2 sums in fewer bits; an element differs by at most 0.0281 of the sum of its terms' magnitudes
// JSON: "numerics": {
// JSON-NEXT: "class": "reduced-precision-sums",
// JSON-NEXT: "collectives": 2,
// JSON-NEXT: "error": 0.0281
func.func @gradients(%x: tensor<4096x1024xbf16>, %y: tensor<16x1024xf16>) -> (tensor<512x1024xf32>, tensor<16x1024xf32>) {
  %a = arith.extf %x : tensor<4096x1024xbf16> to tensor<4096x1024xf32>
  // expected-remark @+1 {{carries 8388608 in place of 16777216 bytes; a sum of 8 ranks in bf16, which differs by at most 0.0281 of the sum of the terms' magnitudes}}
  %f = comm.reduce_scatter sum %a on @dp : (tensor<4096x1024xf32>) -> !comm.future<tensor<512x1024xf32>>
  %v = comm.wait %f : !comm.future<tensor<512x1024xf32>>
  %b = arith.extf %y : tensor<16x1024xf16> to tensor<16x1024xf32>
  // expected-remark @+1 {{a sum of 8 ranks in f16, which differs by at most 0.0034 of the sum of the terms' magnitudes}}
  %g = comm.all_reduce sum %b on @dp : (tensor<16x1024xf32>) -> !comm.future<tensor<16x1024xf32>>
  %w = comm.wait %g : !comm.future<tensor<16x1024xf32>>
  return %v, %w : tensor<512x1024xf32>, tensor<16x1024xf32>
}

// Tests that a sum of too many terms says that it has no bound, and that terms which are not narrow already are not rounded.
// CHECK-LABEL: func @unbounded
// CHECK-SAME: comm.numerics = {class = "reduced-precision-sums", collectives = 1 : i64}
// CHECK: comm.all_reduce avg %arg0 on @many : (tensor<64x1024xbf16>)
// CHECK: comm.all_reduce sum %arg1 on @dp : (tensor<64x1024xf32>)
// CHECK: comm.all_reduce sum {{.*}} : (tensor<64x1024xf32>)
func.func @unbounded(%x: tensor<64x1024xbf16>, %y: tensor<64x1024xf32>, %z: tensor<64x1024xf8E4M3FN>) -> (tensor<64x1024xf32>, tensor<64x1024xbf16>, tensor<64x1024xf32>) {
  %a = arith.extf %x : tensor<64x1024xbf16> to tensor<64x1024xf32>
  // expected-remark @+1 {{a sum of 1024 ranks in bf16, whose error has no bound}}
  %f = comm.all_reduce avg %a on @many : (tensor<64x1024xf32>) -> !comm.future<tensor<64x1024xf32>>
  %u = comm.wait %f : !comm.future<tensor<64x1024xf32>>
  // expected-remark @+1 {{LimitingFactor="the collective computes with its elements, which would round differently"}}
  %g = comm.all_reduce sum %y on @dp : (tensor<64x1024xf32>) -> !comm.future<tensor<64x1024xf32>>
  %v = comm.wait %g : !comm.future<tensor<64x1024xf32>>
  %n = arith.truncf %v : tensor<64x1024xf32> to tensor<64x1024xbf16>
  %c = arith.extf %z : tensor<64x1024xf8E4M3FN> to tensor<64x1024xf32>
  // expected-remark @+1 {{LimitingFactor="the collective computes with its elements, which would round differently"}}
  %h = comm.all_reduce sum %c on @dp : (tensor<64x1024xf32>) -> !comm.future<tensor<64x1024xf32>>
  %w = comm.wait %h : !comm.future<tensor<64x1024xf32>>
  return %u, %n, %w : tensor<64x1024xf32>, tensor<64x1024xbf16>, tensor<64x1024xf32>
}

// PROVEN: valid; blocks: 2
// PROVEN: made of {{[0-9a-f]+}}; results: reduced-precision-sums{{$}}
// UNKNOWN: numerics=wild: expected exact or reduced-precision-sums

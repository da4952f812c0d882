// RUN: comm-opt %s --comm-lower-to-runtime=device | FileCheck %s
// RUN: comm-opt %s --comm-lower-to-runtime="device ptx" | sed 's/\\0A/\n/g; s/\\09/ /g' | FileCheck %s --check-prefix=PTX
// RUN: not comm-opt %S/Inputs/libdevice.mlir --comm-lower-to-runtime="device ptx" 2>&1 | FileCheck %s --check-prefix=LIBDEVICE
// RUN: comm-opt %S/Inputs/libdevice.mlir --comm-lower-to-runtime=device -o /dev/null
// LIBDEVICE: libdevice.mlir:4:{{[0-9]+}}: error: expected a function that a GPU computes without NVIDIA's libdevice, got 'math.exp' on 'f64'

comm.group @world #comm.iota<[1, 2]>

// Tests that equal kernels are one, that each has its code and its host build, and that the image is loaded with the program.
// CHECK-DAG: llvm.mlir.global internal constant @[[IMAGE:.*]]("commsched\00")
// CHECK-DAG: llvm.mlir.global internal constant @[[KERNEL:.*]]("main_kernel\00")
// CHECK-DAG: llvm.mlir.global internal constant @[[OTHER:.*]]("main_kernel_{{[0-9]}}\00")
// PTX: .target sm_80
// PTX: .visible .entry main_kernel(
// PTX: .maxntid 256, 1, 1
// PTX: sqrt.rn.f32
// Two rounded operations are not fused into one: the bits of other backends.
// PTX: mul.rn.f32
// PTX-NEXT: add.rn.f32
// PTX: .visible .entry main_kernel_
// PTX: fma.rn.bf16
// PTX-NOT: .visible .entry
// PTX-NOT: .extern

// CHECK-LABEL: llvm.func @main
func.func @main(%x: tensor<100x10xf32>, %b: tensor<64xbf16>, %i: index) -> (tensor<100x10xf32>, tensor<64xbf16>, f32) {
  // CHECK-DAG: %[[FIRST:.*]] = llvm.mlir.addressof @[[KERNEL]]
  // CHECK-DAG: %[[SECOND:.*]] = llvm.mlir.addressof @[[OTHER]]
  // The constant of the product is on the device. Its address is found once.
  // CHECK-DAG: llvm.call @commrt_arena_find
  // CHECK-DAG: llvm.call @commrt_image_find
  // CHECK: llvm.call @commrt_kernel_launch(%{{.*}}, %[[FIRST]],
  %e = tensor.empty() : tensor<100x10xf32>
  %y = linalg.map ins(%x : tensor<100x10xf32>) outs(%e : tensor<100x10xf32>) (%v: f32, %o: f32) {
    %r = math.sqrt %v : f32
    %p = arith.mulf %r, %r : f32
    %s = arith.addf %p, %v : f32
    linalg.yield %s : f32
  }
  // CHECK: llvm.call @commrt_kernel_launch(%{{.*}}, %[[FIRST]],
  %z = linalg.map ins(%y : tensor<100x10xf32>) outs(%e : tensor<100x10xf32>) (%v: f32, %o: f32) {
    %r = math.sqrt %v : f32
    %p = arith.mulf %r, %r : f32
    %s = arith.addf %p, %v : f32
    linalg.yield %s : f32
  }
  // CHECK: llvm.call @commrt_kernel_launch(%{{.*}}, %[[SECOND]],
  %c = linalg.add ins(%b, %b : tensor<64xbf16>, tensor<64xbf16>) outs(%b : tensor<64xbf16>) -> tensor<64xbf16>
  // A product of matrices is the runtime's.
  // CHECK-NOT: commrt_kernel_launch
  // CHECK: llvm.call @commrt_compute
  %w = arith.constant dense<0.5> : tensor<10x10xf32>
  %m = linalg.matmul ins(%z, %w : tensor<100x10xf32>, tensor<10x10xf32>) outs(%y : tensor<100x10xf32>) -> tensor<100x10xf32>
  // The host reads one element.
  // CHECK: llvm.call @commrt_copy
  %f = tensor.extract %m[%i, %i] : tensor<100x10xf32>
  // CHECK-NOT: commrt_progress
  return %m, %c, %f : tensor<100x10xf32>, tensor<64xbf16>, f32
}

// CHECK: llvm.func @commrt_module_begin
// CHECK: llvm.mlir.addressof @main_kernel_host
// CHECK: llvm.call @commrt_constant_create
// CHECK: llvm.call @commrt_image_load
// CHECK: llvm.func internal @main_kernel_host(%{{.*}}: !llvm.ptr, %{{.*}}: !llvm.ptr, %{{.*}}: !llvm.ptr)
// CHECK: llvm.intr.sqrt

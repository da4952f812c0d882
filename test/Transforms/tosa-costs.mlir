// Tests that programs of TOSA are scheduled by costs from their shapes, and that nothing in them has unknown effects or a guessed cost.

// RUN: comm-opt %s --reorder-comm-overlap='table=true memory-budget-ratio=1' -o /dev/null 2>&1 | FileCheck %s --implicit-check-not=guess --implicit-check-not=unknown

comm.group @dp #comm.iota<[1, 8]>

// The convolution: 2 x 64 x 64 x 64 x 128 x 9 x 128 operations at 794.5 TFLOP/s are 97.3 us. The hyperbolic tangent reads and writes 64 MiB each,
// and the exponential 8 MiB each, at 3015 GB/s: 44.5 us and 5.6 us. Three launches take 1.3 us each, and the reshape is free. The second gather
// hides behind the first two kernels; the first one takes 12.6 us.
// CHECK: convolutions: {{.*}} 2 collectives
// CHECK: makespan 213 us 164 us -
// CHECK: load compute 151 us
// CHECK: load @dp 62.1 us
func.func @convolutions(%x: tensor<64x66x66x128xbf16>, %w1: tensor<16x3x3x128xbf16>, %w2: tensor<1024x512xbf16>,
                        %b: tensor<128xbf16>) -> (tensor<64x64x64x128xbf16>, tensor<1x8192x512xbf16>) {
  %z = "tosa.const"() {values = dense<0.0> : tensor<1xbf16>} : () -> tensor<1xbf16>
  %f1 = comm.all_gather %w1 on @dp : (tensor<16x3x3x128xbf16>) -> !comm.future<tensor<128x3x3x128xbf16>>
  %k = comm.wait %f1 : !comm.future<tensor<128x3x3x128xbf16>>
  %y = tosa.conv2d %x, %k, %b, %z, %z {acc_type = f32, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>} : (tensor<64x66x66x128xbf16>, tensor<128x3x3x128xbf16>, tensor<128xbf16>, tensor<1xbf16>, tensor<1xbf16>) -> tensor<64x64x64x128xbf16>
  %t = tosa.tanh %y : (tensor<64x64x64x128xbf16>) -> tensor<64x64x64x128xbf16>
  %f2 = comm.all_gather %w2 on @dp : (tensor<1024x512xbf16>) -> !comm.future<tensor<8192x512xbf16>>
  %g = comm.wait %f2 : !comm.future<tensor<8192x512xbf16>>
  %s = tosa.const_shape {values = dense<[1, 8192, 512]> : tensor<3xindex>} : () -> !tosa.shape<3>
  %m = tosa.reshape %g, %s : (tensor<8192x512xbf16>, !tosa.shape<3>) -> tensor<1x8192x512xbf16>
  %e = tosa.exp %m : (tensor<1x8192x512xbf16>) -> tensor<1x8192x512xbf16>
  return %t, %e : tensor<64x64x64x128xbf16>, tensor<1x8192x512xbf16>
}

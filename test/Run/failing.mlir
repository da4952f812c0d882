// Tests that compiled code is left at the first error: what comes after it, an endless loop here, is not run, and the error
// says which collective failed and where it stands.

// RUN: not comm-run %s --ranks 2 --fault error@1:rank=0 2>&1 | FileCheck %s
// RUN: not comm-run %s --ranks 2 --fault drop@2 --timeout-ms 300 2>&1 | FileCheck %s --check-prefix=DROP

// CHECK: injected fault: rank 0: {{.*}}all_reduce of 4 x f32 on @world {{.*}}failing.mlir:[[@LINE+5]]:
// DROP: timeout: rank {{[01]}}: waited 300 ms; {{.*}}failing.mlir:
comm.group @world #comm.iota<[1, 2]>

func.func private @step(%x: tensor<4xf32>) -> tensor<4xf32> {
  %f = comm.all_reduce avg %x on @world : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %y = comm.wait %f : !comm.future<tensor<4xf32>>
  return %y : tensor<4xf32>
}

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %many = arith.constant 1000000000000 : index
  // More iterations than a lifetime has.
  %y = scf.for %i = %c0 to %many step %c1 iter_args(%a = %x) -> tensor<4xf32> {
    %b = func.call @step(%a) : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}

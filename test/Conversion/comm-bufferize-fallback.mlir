// RUN: comm-opt %s --comm-bufferize --remarks-filter=comm-bufferize --split-input-file --verify-diagnostics | FileCheck %s

// Tests that a future that leaves its block turns the in-place analysis off, with the reason; and that its buffer is left
// to the runtime.
// expected-remark @+1 {{LimitingFactor="the future of the collective at start leaves its block"}}
module {
  comm.group @dp #comm.iota<[1, 2]>
  // CHECK-LABEL: func @leaves
  func.func @leaves(%x: tensor<8xf32>) -> (!comm.future<tensor<16xf32>>, tensor<8xf32>) {
    %e = tensor.empty() : tensor<8xf32>
    // CHECK: %[[A:[a-z0-9_]+]] = memref.alloc() {{{.*}}bufferization.manual_deallocation}
    %a = linalg.exp ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    // CHECK: memref.alloc() {{{.*}}bufferization.manual_deallocation}
    %s = comm.all_gather %a on @dp : (tensor<8xf32>) -> !comm.future<tensor<16xf32>> loc("start")
    // CHECK: linalg.exp ins(%[[A]] : {{.*}}) outs(%[[OTHER:alloc[_0-9]*]] :
    %b = linalg.exp ins(%a : tensor<8xf32>) outs(%a : tensor<8xf32>) -> tensor<8xf32>
    // CHECK-NOT: memref.dealloc %[[A]]
    return %s, %b : !comm.future<tensor<16xf32>>, tensor<8xf32>
  }
}

// -----

// Tests a future that comes in.
// expected-remark @+1 {{LimitingFactor="the wait at end is for a future from elsewhere"}}
module {
  // CHECK-LABEL: func @comes_in
  func.func @comes_in(%s: !comm.future<tensor<16xf32>>) -> tensor<16xf32> {
    %w = comm.wait %s : !comm.future<tensor<16xf32>> loc("end")
    return %w : tensor<16xf32>
  }
}

// -----

// Tests a tensor of a buffer that others may write. With `restrict` there are none.
// expected-remark @+1 {{LimitingFactor="the tensor at here may share its buffer with others"}}
module {
  // CHECK-LABEL: func @shared
  func.func @shared(%m: memref<8xf32>) -> tensor<8xf32> {
    %t = bufferization.to_tensor %m : memref<8xf32> to tensor<8xf32> loc("here")
    return %t : tensor<8xf32>
  }
}

// -----

module {
  // CHECK-LABEL: func @restricted
  func.func @restricted(%m: memref<8xf32>) -> tensor<8xf32> {
    %t = bufferization.to_tensor %m restrict : memref<8xf32> to tensor<8xf32>
    return %t : tensor<8xf32>
  }
}

// -----

// Tests that a future that a branch passes to a basic block is refused by name.

comm.group @world #comm.iota<[1, 2]>

func.func @branch(%x: tensor<8xf32>) -> tensor<8xf32> {
  %f = comm.all_reduce sum %x on @world : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  // expected-error @below {{cannot be bufferized: expected no future of tensors as an argument of a basic block}}
  cf.br ^a(%f : !comm.future<tensor<8xf32>>)
^a(%g: !comm.future<tensor<8xf32>>):
  %w = comm.wait %g : !comm.future<tensor<8xf32>>
  return %w : tensor<8xf32>
}

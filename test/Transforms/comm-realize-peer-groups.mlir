// RUN: comm-opt %s --comm-realize-buffers="one-shot-threshold-bytes=64 peer-groups=tp" --remarks-filter=comm-realize-buffers --verify-diagnostics | FileCheck %s
// RUN: not comm-opt %s --comm-realize-buffers="peer-groups=tp,dpp" -o %t 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: not test -e %t
// RUN: not comm-opt %s --reorder-comm-overlap="passes=comm-realize-buffers{peer-groups=f}" -o %t 2>&1 | FileCheck %s --check-prefix=NAME
// NAME: comm-realize-peer-groups.mlir:{{.*}}: error: comm-realize-buffers: peer-groups={{dpp|f}}: expected the name of a comm.group

// Tests that only groups whose ranks reach each other's memory get symmetric memory and one-shot sums.

comm.group @tp #comm.iota<[2, 2]>
comm.group @dp #comm.iota<[1, 4]>
// CHECK-LABEL: func @f
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = comm.compute "a"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: comm.all_reduce sum %{{.*}} on @tp one_shot {comm.symmetric = array<i1: true, true>}
  // expected-remark @+2 {{Remark="done in one shot"}}
  // expected-remark @+1 {{Remark="symmetric memory"}}
  %f = comm.all_reduce sum %a on @tp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %w = comm.wait %f : !comm.future<tensor<4xf32>>
  %b = comm.compute "b"(%w) : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: comm.all_reduce sum %[[B:.*]] into %[[B]] on @dp :
  // expected-remark @+2 {{Remark="written in place"}}
  // expected-remark @+1 {{LimitingFactor="no symmetric memory: @dp is not among the peer groups"}}
  %g = comm.all_reduce sum %b on @dp : (tensor<4xf32>) -> !comm.future<tensor<4xf32>>
  %v = comm.wait %g : !comm.future<tensor<4xf32>>
  %c = comm.compute "c"(%v) : (tensor<4xf32>) -> tensor<4xf32>
  return %c : tensor<4xf32>
}

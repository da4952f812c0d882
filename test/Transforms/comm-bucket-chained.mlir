// Tests that a bucket which reads the output of another bucket keeps that bucket's buffer alive: the merged all-reduce (128
// bytes) is live while the merged reduce-scatter packs, with a cast fused into the pack and without.
// RUN: comm-opt %s --comm-bucket | FileCheck %s
// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-bucket report-file=%t.json table=false" -o /dev/null
// RUN: %python -c "import json, sys; print([f['peak_bytes']['after'] for f in json.load(open(sys.argv[1]))['functions']])" %t.json | FileCheck %s --check-prefix=PEAK
// PEAK: [256, 256]

comm.group @world #comm.ranks<[[0, 1]]>
// CHECK-LABEL: func.func @cast
// CHECK: comm.all_reduce sum {{.*}} : (tensor<32xf32>
// CHECK: comm.fsdp.chunk_cat %{{.*}}#1, %{{.*}} chunks 2 : (tensor<4x4xf32>, tensor<4x4xbf16>) -> tensor<32xbf16>
// CHECK: comm.reduce_scatter sum {{.*}} : (tensor<32xbf16>
func.func @cast(%v1: tensor<4x4xf32>, %v18: tensor<4x4xbf16>) -> (tensor<4x4xf32>, tensor<2x4xbf16>, tensor<2x4xbf16>) {
  %v10 = comm.all_reduce sum %v1 on @world : (tensor<4x4xf32>) -> !comm.future<tensor<4x4xf32>>
  %v11 = comm.wait %v10 : !comm.future<tensor<4x4xf32>>
  %v12 = comm.all_reduce sum %v1 on @world : (tensor<4x4xf32>) -> !comm.future<tensor<4x4xf32>>
  %v13 = comm.wait %v12 : !comm.future<tensor<4x4xf32>>
  %v20 = comm.compute "neg"(%v11) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %v22 = comm.compute "cast"(%v13) : (tensor<4x4xf32>) -> tensor<4x4xbf16>
  %v23 = comm.reduce_scatter sum %v22 on @world dim 0 : (tensor<4x4xbf16>) -> !comm.future<tensor<2x4xbf16>>
  %v24 = comm.wait %v23 : !comm.future<tensor<2x4xbf16>>
  %v25 = comm.reduce_scatter sum %v18 on @world dim 0 : (tensor<4x4xbf16>) -> !comm.future<tensor<2x4xbf16>>
  %v26 = comm.wait %v25 : !comm.future<tensor<2x4xbf16>>
  return %v20, %v24, %v26 : tensor<4x4xf32>, tensor<2x4xbf16>, tensor<2x4xbf16>
}

// CHECK-LABEL: func.func @plain
// CHECK: comm.all_reduce sum {{.*}} : (tensor<32xf32>
// CHECK: comm.reduce_scatter sum {{.*}} : (tensor<32xf32>
func.func @plain(%v1: tensor<4x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>) {
  %v10 = comm.all_reduce sum %v1 on @world : (tensor<4x4xf32>) -> !comm.future<tensor<4x4xf32>>
  %v11 = comm.wait %v10 : !comm.future<tensor<4x4xf32>>
  %v12 = comm.all_reduce sum %v1 on @world : (tensor<4x4xf32>) -> !comm.future<tensor<4x4xf32>>
  %v13 = comm.wait %v12 : !comm.future<tensor<4x4xf32>>
  %v23 = comm.reduce_scatter sum %v11 on @world dim 0 : (tensor<4x4xf32>) -> !comm.future<tensor<2x4xf32>>
  %v24 = comm.wait %v23 : !comm.future<tensor<2x4xf32>>
  %v25 = comm.reduce_scatter sum %v13 on @world dim 0 : (tensor<4x4xf32>) -> !comm.future<tensor<2x4xf32>>
  %v26 = comm.wait %v25 : !comm.future<tensor<2x4xf32>>
  return %v24, %v26 : tensor<2x4xf32>, tensor<2x4xf32>
}

// RUN: split-file %s %t
// RUN: comm-opt %t/gather.mlir --comm-reorder-preserving-peak-memory="memory-budget-ratio=100" --remarks-filter="comm-reorder.*" \
// RUN:   2>%t/gather.txt | FileCheck %s --check-prefix=GATHER
// RUN: FileCheck %s --check-prefix=GATHER-REMARK --input-file=%t/gather.txt
// RUN: comm-opt %t/wait.mlir --comm-sink-waits-preserving-peak-memory="memory-budget-ratio=100" --remarks-filter="comm-sink.*" \
// RUN:   2>%t/wait.txt | FileCheck %s --check-prefix=WAIT
// RUN: FileCheck %s --check-prefix=WAIT-REMARK --input-file=%t/wait.txt
// RUN: comm-opt %t/products.mlir --comm-reorder-preserving-peak-memory="memory-budget-ratio=100" \
// RUN:   | FileCheck %s --check-prefix=PRODUCT

// Tests both passes in their default mode, without estimates, on fully sharded programs: only matrix products stay where
// they are, and no operation of the comm dialect is one.

// Tests that a gather takes its copy-in along, and the wait and copy-out that its copy-in depends on.
// GATHER-LABEL: func @copy_in
// GATHER-NEXT: comm.fsdp.all_gather_copy_in %arg1
// GATHER-NEXT: comm.all_gather
// GATHER-NEXT: comm.fsdp.all_gather_copy_in %arg0
// GATHER-NEXT: comm.all_gather
// GATHER-NEXT: compute "aten.mm.default"
// GATHER-REMARK: 'comm.all_gather' passed {{[0-9]+}} operations and took 1 operation along
// GATHER-LABEL: func @wait_and_copy_out
// GATHER-NEXT: comm.all_gather
// GATHER-NEXT: comm.wait
// GATHER-NEXT: comm.fsdp.split_with_sizes_copy
// GATHER-NEXT: comm.fsdp.all_gather_copy_in
// GATHER-NEXT: comm.all_gather
// GATHER-NEXT: compute "aten.mm.default"
// GATHER-REMARK: 'comm.all_gather' passed 1 operation and took 3 operations along

// Tests that a wait takes its copy-out along, and what reads the copy.
// WAIT-LABEL: func @copy_out
// WAIT: comm.all_gather
// WAIT-NEXT: compute "aten.mm.default"
// WAIT-NEXT: comm.wait
// WAIT-NEXT: comm.fsdp.split_with_sizes_copy
// WAIT-NEXT: compute "aten.add.Tensor"
// WAIT-REMARK: 'comm.wait' passed 1 operation and took 2 operations along

// Tests what a matrix product is: linalg's contractions, named or not; a name in the list, whatever else is in the
// operation's name; flops that are given for an operation without a model; and a region or callee with one of these.
// PRODUCT-LABEL: func @is_product
// PRODUCT: "before"
// PRODUCT: linalg.matmul
// PRODUCT-NEXT: comm.all_reduce
// PRODUCT: "before"
// PRODUCT: linalg.generic
// PRODUCT: comm.all_reduce
// PRODUCT: "before"
// PRODUCT-NEXT: compute "aten._scaled_mm.default"
// PRODUCT-NEXT: comm.all_reduce
// PRODUCT: "before"
// PRODUCT-NEXT: compute "my_kernel"
// PRODUCT-NEXT: comm.all_reduce
// PRODUCT: "before"
// PRODUCT-NEXT: call @product
// PRODUCT-NEXT: comm.all_reduce
// PRODUCT-LABEL: func @is_no_product
// PRODUCT: linalg.generic
// PRODUCT: comm.all_reduce
// PRODUCT-NEXT: compute "aten.conv2d_weight_convert"
// PRODUCT-NEXT: comm.all_reduce
// PRODUCT-NEXT: compute "triton.fused_comm"
// PRODUCT-NEXT: comm.all_reduce
// PRODUCT-NEXT: compute "gemma_rmsnorm"
// PRODUCT-NEXT: comm.all_reduce
// PRODUCT-NEXT: compute "before"

//--- gather.mlir
comm.group @dp #comm.iota<[1, 4]>
func.func @copy_in(%a: tensor<4xf32>, %b: tensor<4xf32>, %x: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
  %u = comm.compute "aten.mm.default"(%x) : (tensor<16xf32>) -> tensor<16xf32>
  %s0, %b0 = comm.fsdp.all_gather_copy_in %a on @dp : (tensor<4xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  %f0 = comm.all_gather %s0 into %b0 on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<16xf32>>
  %p0 = comm.fsdp.split_with_sizes_copy %w0 sizes [4] : (tensor<16xf32>) -> tensor<16xf32>
  %v = comm.compute "aten.mm.default"(%u, %p0) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  %s1, %b1 = comm.fsdp.all_gather_copy_in %b on @dp : (tensor<4xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  %f1 = comm.all_gather %s1 into %b1 on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<16xf32>>
  %p1 = comm.fsdp.split_with_sizes_copy %w1 sizes [4] : (tensor<16xf32>) -> tensor<16xf32>
  %z = comm.compute "aten.mm.default"(%v, %p1) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  return %z, %v : tensor<16xf32>, tensor<16xf32>
}

func.func @wait_and_copy_out(%a: tensor<4xf32>, %x: tensor<16xf32>) -> (tensor<16xf32>, tensor<64xf32>) {
  %f0 = comm.all_gather %a on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %u = comm.compute "aten.mm.default"(%x) : (tensor<16xf32>) -> tensor<16xf32>
  %w0 = comm.wait %f0 : !comm.future<tensor<16xf32>>
  %p0 = comm.fsdp.split_with_sizes_copy %w0 sizes [4] : (tensor<16xf32>) -> tensor<16xf32>
  %s1, %b1 = comm.fsdp.all_gather_copy_in %p0 on @dp : (tensor<16xf32>) -> (tensor<16xf32>, tensor<64xf32>)
  %f1 = comm.all_gather %s1 into %b1 on @dp : (tensor<16xf32>) -> !comm.future<tensor<64xf32>>
  %w1 = comm.wait %f1 : !comm.future<tensor<64xf32>>
  return %u, %w1 : tensor<16xf32>, tensor<64xf32>
}

//--- wait.mlir
comm.group @dp #comm.iota<[1, 4]>
func.func @copy_out(%a: tensor<4xf32>, %x: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
  %s0, %b0 = comm.fsdp.all_gather_copy_in %a on @dp : (tensor<4xf32>) -> (tensor<4xf32>, tensor<16xf32>)
  %f0 = comm.all_gather %s0 into %b0 on @dp : (tensor<4xf32>) -> !comm.future<tensor<16xf32>>
  %w0 = comm.wait %f0 : !comm.future<tensor<16xf32>>
  %p0 = comm.fsdp.split_with_sizes_copy %w0 sizes [4] : (tensor<16xf32>) -> tensor<16xf32>
  %u = comm.compute "aten.mm.default"(%x) : (tensor<16xf32>) -> tensor<16xf32>
  %v = comm.compute "aten.add.Tensor"(%u, %p0) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  return %u, %v : tensor<16xf32>, tensor<16xf32>
}

//--- products.mlir
comm.group @dp #comm.iota<[1, 4]>
#row = affine_map<(d0, d1, d2) -> (d0, d2)>
#column = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>

func.func private @product(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %m = comm.compute "mm"(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %m : tensor<8x8xf32>
}

func.func @is_product(%x: tensor<8x8xf32>) {
  %e = tensor.empty() : tensor<8x8xf32>
  %b0 = comm.compute "before"(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %m0 = linalg.matmul ins(%x, %x : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %f0 = comm.all_reduce sum %m0 on @dp : (tensor<8x8xf32>) -> !comm.future<tensor<8x8xf32>>
  %r0 = comm.wait %f0 : !comm.future<tensor<8x8xf32>>
  %b1 = comm.compute "before"(%r0) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %m1 = linalg.generic {indexing_maps = [#row, #column, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%r0, %r0 : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %c, %p : f32
    linalg.yield %s : f32
  } -> tensor<8x8xf32>
  %f1 = comm.all_reduce sum %m1 on @dp : (tensor<8x8xf32>) -> !comm.future<tensor<8x8xf32>>
  %r1 = comm.wait %f1 : !comm.future<tensor<8x8xf32>>
  %b3 = comm.compute "before"(%r1) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %m3 = comm.compute "aten._scaled_mm.default"(%r1) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %f3 = comm.all_reduce sum %m3 on @dp : (tensor<8x8xf32>) -> !comm.future<tensor<8x8xf32>>
  %r3 = comm.wait %f3 : !comm.future<tensor<8x8xf32>>
  %b4 = comm.compute "before"(%r3) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %m4 = comm.compute "my_kernel"(%r3) {comm.cost = #comm.cost<flops = 1024>} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %f4 = comm.all_reduce sum %m4 on @dp : (tensor<8x8xf32>) -> !comm.future<tensor<8x8xf32>>
  %r4 = comm.wait %f4 : !comm.future<tensor<8x8xf32>>
  %b5 = comm.compute "before"(%r4) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %m5 = func.call @product(%r4) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %f5 = comm.all_reduce sum %m5 on @dp : (tensor<8x8xf32>) -> !comm.future<tensor<8x8xf32>>
  %r5 = comm.wait %f5 : !comm.future<tensor<8x8xf32>>
  return
}

func.func @is_no_product(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %e = tensor.empty() : tensor<8x8xf32>
  %b = comm.compute "before"(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %m0 = comm.compute "gemma_rmsnorm"(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %f0 = comm.all_reduce sum %m0 on @dp : (tensor<8x8xf32>) -> !comm.future<tensor<8x8xf32>>
  %m1 = comm.compute "triton.fused_comm"(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %f1 = comm.all_reduce sum %m1 on @dp : (tensor<8x8xf32>) -> !comm.future<tensor<8x8xf32>>
  %m2 = comm.compute "aten.conv2d_weight_convert"(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %f2 = comm.all_reduce sum %m2 on @dp : (tensor<8x8xf32>) -> !comm.future<tensor<8x8xf32>>
  %m3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %c: f32):
    %p = arith.mulf %a, %a : f32
    linalg.yield %p : f32
  } -> tensor<8x8xf32>
  %f3 = comm.all_reduce sum %m3 on @dp : (tensor<8x8xf32>) -> !comm.future<tensor<8x8xf32>>
  %r0 = comm.wait %f0 : !comm.future<tensor<8x8xf32>>
  %r1 = comm.wait %f1 : !comm.future<tensor<8x8xf32>>
  %r2 = comm.wait %f2 : !comm.future<tensor<8x8xf32>>
  %r3 = comm.wait %f3 : !comm.future<tensor<8x8xf32>>
  return %b : tensor<8x8xf32>
}

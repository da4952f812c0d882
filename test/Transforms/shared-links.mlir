// Tests that groups on the same links share a lane, in the answer and in its bound, and that groups on other links do not.

// RUN: comm-opt %s --reorder-comm-overlap="memory-budget-ratio=2 machine=h100-sxm certificate-file=%t.cert" -o /dev/null 2>&1 | FileCheck %s
// RUN: env PYTHONPATH=%commsched_src_root/python %python -m commsched_verify %t.cert | FileCheck %s --check-prefix=PROOF

comm.group @a #comm.iota<[1, 16]>
comm.group @in_node #comm.iota<[2, 8]>
comm.group @again #comm.iota<[2, 8]>
comm.group @across #comm.iota<[8, 2] from [2, 8] transpose [1, 0]>

// PROOF: valid

// Tests two gathers of the same ranks: they take as long as two of one group, and no order is shorter.
// CHECK-LABEL: {{^}}same_ranks: 4 operations
// CHECK: makespan {{ *}}200 us {{ *}}200 us
// CHECK: lower bound {{ *}}200 us {{ *}}lane of groups @in_node, @again; at most 0.00 %
func.func @same_ranks(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %f = comm.all_gather %x on @in_node {comm.cost = #comm.cost<time = 100000>} : (tensor<8xf32>) -> !comm.future<tensor<64xf32>>
  %g = comm.wait %f : !comm.future<tensor<64xf32>>
  %h = comm.all_gather %y on @again {comm.cost = #comm.cost<time = 100000>} : (tensor<8xf32>) -> !comm.future<tensor<64xf32>>
  %k = comm.wait %h : !comm.future<tensor<64xf32>>
  return %g, %k : tensor<64xf32>, tensor<64xf32>
}

// Tests two reductions across nodes of other ranks: both use the network.
// CHECK-LABEL: {{^}}network: 4 operations
// CHECK: makespan {{ *}}200 us {{ *}}200 us
// CHECK: lower bound {{ *}}200 us {{ *}}lane of groups {{.*}}; at most 0.00 %
func.func @network(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %f = comm.all_reduce sum %x on @a {comm.cost = #comm.cost<time = 100000>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %g = comm.wait %f : !comm.future<tensor<8xf32>>
  %h = comm.all_reduce sum %y on @across {comm.cost = #comm.cost<time = 100000>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %k = comm.wait %h : !comm.future<tensor<8xf32>>
  return %g, %k : tensor<8xf32>, tensor<8xf32>
}

// Tests a gather inside the nodes and a reduction across them: they use other links, and run side by side.
// CHECK-LABEL: {{^}}other_links: 4 operations
// CHECK: makespan {{ *}}200 us {{ *}}100 us
func.func @other_links(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<64xf32>, tensor<8xf32>) {
  %f = comm.all_gather %x on @in_node {comm.cost = #comm.cost<time = 100000>} : (tensor<8xf32>) -> !comm.future<tensor<64xf32>>
  %g = comm.wait %f : !comm.future<tensor<64xf32>>
  %h = comm.all_reduce sum %y on @across {comm.cost = #comm.cost<time = 100000>} : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  %k = comm.wait %h : !comm.future<tensor<8xf32>>
  return %g, %k : tensor<64xf32>, tensor<8xf32>
}

// Tests a branch with a collective inside: it occupies the lane of its links.
// CHECK-LABEL: {{^}}branch: {{[0-9]}} operations
// CHECK: makespan {{ *}}200 us {{ *}}200 us
func.func @branch(%x: tensor<8xf32>, %y: tensor<64xf32>, %c: i1) -> (tensor<64xf32>, tensor<64xf32>) {
  %f = comm.all_gather %x on @in_node {comm.cost = #comm.cost<time = 100000>} : (tensor<8xf32>) -> !comm.future<tensor<64xf32>>
  %r = scf.if %c -> (tensor<64xf32>) {
    %h = comm.all_reduce sum %y on @again {comm.cost = #comm.cost<time = 100000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
    %k = comm.wait %h : !comm.future<tensor<64xf32>>
    scf.yield %k : tensor<64xf32>
  } else {
    scf.yield %y : tensor<64xf32>
  }
  %g = comm.wait %f : !comm.future<tensor<64xf32>>
  return %g, %r : tensor<64xf32>, tensor<64xf32>
}

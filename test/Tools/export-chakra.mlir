// Tests that traces can be read back, and that an independent simulator that plays them on all ranks gets the makespan, the names, the
// bytes and the times of the report: of an example before and after, with two groups that slow each other down, on a machine where all
// groups have one lane and the issue takes time, and of every kind of collective.
// RUN: rm -rf %t && mkdir %t
// RUN: comm-opt %commsched_src_root/docs/examples/two_layer_fsdp.mlir --comm-export-chakra=directory=%t/given --comm-report-file=%t/given.json -o %t/same.mlir 2> /dev/null
// RUN: %python %S/Inputs/check_chakra.py %t/given step %t/given.json | FileCheck %s --check-prefix=GIVEN
// RUN: comm-opt %commsched_src_root/docs/examples/two_layer_fsdp.mlir --reorder-comm-overlap --comm-export-chakra=directory=%t/deep/er --comm-report-file=%t/after.json -o /dev/null 2> /dev/null
// RUN: %python %S/Inputs/check_chakra.py %t/deep/er step %t/after.json | FileCheck %s --check-prefix=AFTER
// RUN: comm-opt %s --reorder-comm-overlap="passes=comm-schedule,comm-export-chakra{directory=%t/all} machine=cpu-mpi" --comm-report-file=%t/all.json -o /dev/null 2> /dev/null
// RUN: %python %S/Inputs/check_chakra.py %t/all kinds %t/all.json | FileCheck %s --check-prefix=KINDS
// RUN: %python %S/Inputs/check_chakra.py %t/all stage %t/all.json | FileCheck %s --check-prefix=STAGE
// RUN: comm-opt %s --comm-export-chakra=directory=%t/h100 --comm-machine=h100-sxm --comm-report-file=%t/h100.json -o /dev/null 2> /dev/null
// RUN: %python %S/Inputs/check_chakra.py %t/h100 kinds %t/h100.json
// RUN: %python %S/Inputs/check_chakra.py %t/h100 stage %t/h100.json
// GIVEN: 8 ranks, 28 nodes, 2468767 ns
// AFTER: 8 ranks, 28 nodes, 2080383 ns
// KINDS: 8 ranks, {{[0-9]+}} nodes
// STAGE: 8 ranks, {{[0-9]+}} nodes

// Tests that simulators that ignore ctrl_deps get the same makespan if the order of the plan is data.
// RUN: comm-opt %commsched_src_root/docs/examples/two_layer_fsdp.mlir --comm-export-chakra="directory=%t/data order-as-data=true" -o /dev/null
// RUN: %python %S/Inputs/check_chakra.py %t/data step %t/given.json | FileCheck %s --check-prefix=GIVEN
// RUN: %python %S/Inputs/check_chakra.py %t/data step - | FileCheck %s --check-prefix=DATA
// DATA-COUNT-224: "ctrl_deps": []
// DATA-NOT: "ctrl_deps"

// Tests that groups of ranks are process groups with numbers from 1, and that equal runs write equal bytes.
// RUN: FileCheck %s --check-prefix=GROUPS --input-file=%t/all/kinds.groups.json
// RUN: comm-opt %s --comm-export-chakra=directory=%t/again --comm-machine=h100-sxm -o /dev/null 2> /dev/null
// RUN: diff -r %t/h100 %t/again
// GROUPS: {"1":[0,1,2,3],"2":[4,5,6,7],"3":[0,4],"4":[1,5],"5":[2,6],"6":[3,7]}

// Tests the same with random programs, in orders that passes chose, on three machines.
// RUN: %python %S/Inputs/random_chakra.py comm-opt 60 | FileCheck %s --check-prefix=RANDOM
// RANDOM: 28 of 60 programs played

// Tests the nodes of a program by hand. The collective is free of data, and its lane has nothing before it. The wait takes no time, what
// follows it waits for it, and the fused operation comes after both lanes. The names are those of locations.
// RUN: %python %S/Inputs/check_chakra.py %t/h100 small - | FileCheck %s --check-prefix=SMALL
// SMALL: 0 {"attr": {"is_cpu_op": false, "op": "comm.all_gather", "duration_ns": 80000, "comm_size": 32, "pg_name": "1", "pg_desc": "eight", "comm_type": 2}, "ctrl_deps": [], "data_deps": [], "id": 0, "name": "gather", "type": 7, "start": 0, "duration": 80}
// SMALL-NEXT: 0 {"attr": {"is_cpu_op": false, "op": "before", "duration_ns": 50400}, "ctrl_deps": [], "data_deps": [], "id": 1, "name": "before", "type": 4, "start": 0, "duration": 50}
// SMALL-NEXT: 0 {{.*}}"ctrl_deps": [1], "data_deps": [0], "id": 2, "name": "model.py:7:3", "type": 4, "start": 80, "duration": 0}
// SMALL-NEXT: 0 {{.*}}"op": "use", "duration_ns": 10600}, "ctrl_deps": [], "data_deps": [1, 2], "id": 3, "name": "a + b", "type": 4, "start": 80, "duration": 11}
// SMALL-NEXT: 0 {{.*}}"op": "fused", "duration_ns": 1400, "comm_size": 256, "pg_name": "1", "pg_desc": "eight", "comm_type": 0}, "ctrl_deps": [0], "data_deps": [3], "id": 4, {{.*}} "type": 7, "start": 91, "duration": 1}
// SMALL-NEXT: 0 {{.*}}"ctrl_deps": [4], "data_deps": [1], "id": 5, "name": "last", "type": 4, "start": 92, "duration": 1}
// SMALL-NEXT: 1 {"attr"

// Tests that a permute is a send and a receive on the ranks that do both, one of them at the ends, and nothing on the others.
// RUN: %python %S/Inputs/check_chakra.py %t/h100 stage - | grep comm.permute | FileCheck %s --check-prefix=PERMUTE
// PERMUTE: 0 {{.*}}"comm_src": 0, "comm_dst": 1, "comm_tag": 0}, {{.*}}"type": 5,
// PERMUTE-NEXT: 1 {{.*}}"comm_src": 1, "comm_dst": 2, {{.*}}"type": 5,
// PERMUTE-NEXT: 1 {{.*}}"comm_src": 0, "comm_dst": 1, {{.*}}"type": 6,
// PERMUTE-NEXT: 2 {{.*}}"comm_src": 1, "comm_dst": 2, {{.*}}"type": 6,
// PERMUTE-NEXT: 3 {{.*}}"duration_ns": 0}{{.*}}"type": 4,
// PERMUTE-NEXT: 4 {{.*}}"comm_src": 4, "comm_dst": 5,

comm.group @tp #comm.ranks<[[0, 1, 2, 3], [4, 5, 6, 7]]>
comm.group @dp #comm.ranks<[[0, 4], [1, 5], [2, 6], [3, 7]]>

func.func @kinds(%x: tensor<64xf32>, %w: tensor<8xf32>) -> (tensor<64xf32>, tensor<16xf32>, tensor<32xf32>, tensor<8xf32>, tensor<2xf32>) {
  %f0 = comm.all_gather %x on @tp : (tensor<64xf32>) -> !comm.future<tensor<256xf32>>
  %f1 = comm.all_reduce sum %x on @dp : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  %b = comm.compute "b"(%x) {comm.cost = #comm.cost<time = 30001>} : (tensor<64xf32>) -> tensor<64xf32>
  %f2 = comm.reduce_scatter sum %b on @tp : (tensor<64xf32>) -> !comm.future<tensor<16xf32>>
  %f3 = comm.all_to_all %b on @dp : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  %r0 = comm.wait %f0 : !comm.future<tensor<256xf32>>
  %r1 = comm.wait %f1 : !comm.future<tensor<64xf32>>
  %c = comm.compute "c"(%r0, %r1) {comm.cost = #comm.cost<time = 20002>} : (tensor<256xf32>, tensor<64xf32>) -> tensor<64xf32>
  %f4 = comm.broadcast %c on @tp root 0 : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  %f5 = comm.reduce max %c on @dp root 1 : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  %f6 = comm.gather %w on @tp root 0 : (tensor<8xf32>) -> !comm.future<tensor<32xf32>>
  %f7 = comm.scatter %w on @tp root 0 : (tensor<8xf32>) -> !comm.future<tensor<2xf32>>
  %f8 = comm.barrier on @dp : () -> !comm.future<>
  %r2 = comm.wait %f2 : !comm.future<tensor<16xf32>>
  %r3 = comm.wait %f3 : !comm.future<tensor<64xf32>>
  %r4 = comm.wait %f4 : !comm.future<tensor<64xf32>>
  %r5 = comm.wait %f5 : !comm.future<tensor<64xf32>>
  %r6 = comm.wait %f6 : !comm.future<tensor<32xf32>>
  %r7 = comm.wait %f7 : !comm.future<tensor<2xf32>>
  comm.wait %f8 : !comm.future<>
  %s = comm.compute "s"(%r3, %r4, %r5) {comm.cost = #comm.cost<time = 999>} : (tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %s, %r2, %r6, %w, %r7 : tensor<64xf32>, tensor<16xf32>, tensor<32xf32>, tensor<8xf32>, tensor<2xf32>
}

func.func @stage(%x: tensor<64xf32>) -> tensor<64xf32> {
  %f = comm.permute %x on @tp pairs [0, 1, 1, 2] {comm.cost = #comm.cost<time = 20000>} : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  %b = comm.compute "b"(%x) {comm.cost = #comm.cost<time = 15000>} : (tensor<64xf32>) -> tensor<64xf32>
  %r = comm.wait %f : !comm.future<tensor<64xf32>>
  %c = comm.compute "c"(%r, %b) {comm.cost = #comm.cost<time = 15000>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %c : tensor<64xf32>
}

func.func @small(%x: tensor<64xf32>, %w: tensor<8xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %f = comm.all_gather %w on @eight {comm.cost = #comm.cost<time = 80000>} : (tensor<8xf32>) -> !comm.future<tensor<64xf32>> loc("gather")
  %b = comm.compute "before"(%x) {comm.cost = #comm.cost<time = 50400>} : (tensor<64xf32>) -> tensor<64xf32> loc("before")
  %g = comm.wait %f : !comm.future<tensor<64xf32>> loc("model.py":7:3)
  %r = comm.compute "use"(%g, %b) {comm.cost = #comm.cost<time = 10600>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32> loc(fused["a", "b"])
  %h = comm.compute "fused"(%r) {comm.hybrid = @eight, comm.cost = #comm.cost<time = 1400>} : (tensor<64xf32>) -> tensor<64xf32>
  %l = comm.compute "last"(%b) {comm.cost = #comm.cost<time = 700>} : (tensor<64xf32>) -> tensor<64xf32> loc("last")
  return %h, %l : tensor<64xf32>, tensor<64xf32>
}
comm.group @eight #comm.iota<[1, 8]>

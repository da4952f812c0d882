// Tests the messages and reductions that collectives on buffers become in upstream's mpi dialect.

// RUN: comm-opt %s --convert-comm-to-mpi --canonicalize --split-input-file | FileCheck %s --implicit-check-not=comm.

// Tests that each group is a communicator, made once, whose places are those of the group, and that requests are waited for where
// the future was.
// CHECK-DAG: memref.global "private" constant @[[PLACES:.*]] : memref<4xi32> = dense<[0, 0, 1, 1]>
// CHECK-DAG: memref.global "private" constant @[[COLORS:.*]] : memref<4xi32> = dense<[0, 1, 0, 1]>
comm.group @strided #comm.ranks<[[0, 2], [1, 3]]>
// CHECK-LABEL: func @gather
func.func @gather(%x: memref<2x8xf32>, %y: memref<4x8xf32>, %z: memref<2x8xf32>) -> index {
  // CHECK: %[[WORLD:.*]] = mpi.comm_world : !mpi.comm
  // CHECK: %[[RANK:.*]] = mpi.comm_rank(%[[WORLD]]) : i32
  // CHECK-DAG: memref.get_global @[[PLACES]]
  // CHECK-DAG: memref.get_global @[[COLORS]]
  // CHECK: %[[COMM:.*]] = mpi.comm_split(%[[WORLD]], %{{.*}}, %{{.*}}) : !mpi.comm
  // CHECK-NOT: mpi.comm_split
  // CHECK: memref.copy
  // CHECK: %[[R:.*]] = mpi.irecv(%{{.*}}, %[[TAG:.*]], %[[SOURCE:.*]], %[[COMM]])
  // CHECK: %[[S:.*]] = mpi.isend(%{{.*}}, %[[TAG]], %{{.*}}, %[[COMM]])
  %f = comm.all_gather %x into %y on @strided : (memref<2x8xf32>) -> !comm.future<memref<4x8xf32>>
  // CHECK-NEXT: memref.copy %arg0, %arg2
  memref.copy %x, %z : memref<2x8xf32> to memref<2x8xf32>
  // CHECK-NEXT: mpi.wait(%[[R]])
  // CHECK-NEXT: mpi.wait(%[[S]])
  %v = comm.wait %f keeping (%x, %y : memref<2x8xf32>, memref<4x8xf32>) : !comm.future<memref<4x8xf32>>
  // CHECK: arith.index_cast %[[RANK]] : i32 to index
  %r = comm.rank : index
  return %r : index
}

// -----

// Tests that a group of all ranks in order is the world, and the reductions and messages.
comm.group @world #comm.iota<[1, 4]>
// CHECK-LABEL: func @others
func.func @others(%x: memref<8xf32>, %y: memref<8xf32>, %z: memref<8xf32>) {
  // CHECK: %[[SEVEN:.*]] = arith.constant 7 : i32
  // CHECK: %[[WORLD:.*]] = mpi.comm_world : !mpi.comm
  // CHECK-NOT: mpi.comm_split
  // CHECK: mpi.allreduce(%arg0, %arg1, MPI_MAX, %[[WORLD]])
  %f = comm.all_reduce max %x into %y on @world : (memref<8xf32>) -> !comm.future<memref<8xf32>>
  %v = comm.wait %f keeping (%x, %y : memref<8xf32>, memref<8xf32>) : !comm.future<memref<8xf32>>
  // CHECK: mpi.isend(%arg0, %[[SEVEN]], %{{.*}}, %[[WORLD]])
  %s = comm.send %x on @world peer 1 tag 7 : (memref<8xf32>) -> !comm.future<>
  // CHECK: mpi.irecv(%arg2, %[[SEVEN]], %{{.*}}, %[[WORLD]])
  %r = comm.recv into %z on @world peer 1 tag 7 : () -> !comm.future<memref<8xf32>>
  comm.wait %s keeping (%x : memref<8xf32>) : !comm.future<>
  %u = comm.wait %r keeping (%z : memref<8xf32>) : !comm.future<memref<8xf32>>
  // CHECK: mpi.irecv(%arg1
  // CHECK: mpi.isend(%arg0
  %p = comm.permute %x into %y on @world pairs [0, 1, 1, 2, 2, 3, 3, 0] : (memref<8xf32>) -> !comm.future<memref<8xf32>>
  %w = comm.wait %p keeping (%x, %y : memref<8xf32>, memref<8xf32>) : !comm.future<memref<8xf32>>
  // Three pieces go to the others, and one stays.
  // CHECK: memref.copy
  // CHECK-COUNT-3: mpi.isend
  %a = comm.all_to_all %x into %y on @world : (memref<8xf32>) -> !comm.future<memref<8xf32>>
  %b = comm.wait %a keeping (%x, %y : memref<8xf32>, memref<8xf32>) : !comm.future<memref<8xf32>>
  // CHECK: mpi.barrier(%[[WORLD]])
  %c = comm.barrier on @world : () -> !comm.future<>
  comm.wait %c : !comm.future<>
  return
}

// RUN: comm-opt %s --comm-report="table=false report-file=%t.json" -o /dev/null
// RUN: FileCheck %s --input-file=%t.json
// RUN: comm-opt %s --comm-report="machine=cpu-mpi table=false report-file=%t.mpi.json" -o /dev/null
// RUN: FileCheck %s --check-prefix=MPI --input-file=%t.mpi.json

// Tests that NCCL carries out a sum in one shot as any other sum, so that both cost what its model says, and that on a machine
// without NCCL a sum in one shot has its own formula: the launch takes 100 ns and two hops 6,000 ns on cpu-mpi; 7 x 32 KiB at
// 4.8 GB/s take 47,787 ns.
comm.group @dp #comm.iota<[1, 8]>
// CHECK: "bytes": 32768,
// CHECK-NEXT: "cost_ns": 15407,
// MPI: "bytes": 32768,
// MPI-NEXT: "cost_ns": 53887,
// CHECK: "bytes": 32768,
// CHECK-NEXT: "cost_ns": 15407,
func.func @f(%x: tensor<8192xf32>) -> (tensor<8192xf32>, tensor<8192xf32>) {
  %f = comm.all_reduce sum %x on @dp one_shot : (tensor<8192xf32>) -> !comm.future<tensor<8192xf32>>
  %w = comm.wait %f : !comm.future<tensor<8192xf32>>
  %g = comm.all_reduce sum %x on @dp : (tensor<8192xf32>) -> !comm.future<tensor<8192xf32>>
  %v = comm.wait %g : !comm.future<tensor<8192xf32>>
  return %w, %v : tensor<8192xf32>, tensor<8192xf32>
}

// RUN: comm-opt %s --reorder-comm-overlap="effort=2000 table=true passes=cse,comm-schedule" -o /dev/null 2>&1 | FileCheck %s

// Tests that a report does not contradict itself if another pass takes away a read that kept others apart: there is no more work, but
// the lower bound is that of another program. A random program, made small.
// CHECK: main: {{[0-9]+}} operations, 3 collectives
// CHECK: makespan {{.*}} -{{[0-9.]+}} %
// CHECK: lower bound {{ *}}none: more has changed than the order and the buckets
comm.group @world #comm.ranks<[[0]]>
comm.group @single #comm.ranks<[[0]]>
func.func @main(%rank: tensor<1xi64>, %a4: memref<2x1xi32>, %a5: memref<2x1xf64>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m2 = memref.alloc() : memref<2x1xi32>
  memref.copy %a4, %m2 : memref<2x1xi32> to memref<2x1xi32>
  %m3 = memref.alloc() : memref<2x1xf64>
  %f4 = comm.all_reduce sum %a4, %a5 into %m2, %m3 on @world : (memref<2x1xi32>, memref<2x1xf64>) -> !comm.future<memref<2x1xi32>, memref<2x1xf64>>
  %w5:2 = comm.wait %f4 keeping (%a4, %a5, %m2, %m3 : memref<2x1xi32>, memref<2x1xf64>, memref<2x1xi32>, memref<2x1xf64>) : !comm.future<memref<2x1xi32>, memref<2x1xf64>>
  %m7 = memref.alloc() : memref<2x1xf64>
  %m7c = arith.constant 0.0 : f64
  linalg.fill ins(%m7c : f64) outs(%m7 : memref<2x1xf64>)
  %f8 = comm.permute %w5#1, %w5#1, %m2 into %m7, %a5, %a4 on @world pairs [] : (memref<2x1xf64>, memref<2x1xf64>, memref<2x1xi32>) -> !comm.future<memref<2x1xf64>, memref<2x1xf64>, memref<2x1xi32>>
  %b9 = memref.alloc() : memref<2xmemref<2x1xi32>>
  memref.store %m2, %b9[%c0] : memref<2xmemref<2x1xi32>>
  memref.store %w5#0, %b9[%c1] : memref<2xmemref<2x1xi32>>
  %m10 = memref.alloc() : memref<2x1xi32>
  %m11 = memref.alloc() : memref<2x1xf64>
  memref.copy %m3, %m11 : memref<2x1xf64> to memref<2x1xf64>
  %m12 = memref.alloc() : memref<2x1xf64>
  memref.copy %m11, %m12 : memref<2x1xf64> to memref<2x1xf64>
  %f13 = comm.permute %w5#0, %m3, %w5#1 into %m10, %m11, %m12 on @single pairs [0, 0] {comm.cost = #comm.cost<time = 20000>} : (memref<2x1xi32>, memref<2x1xf64>, memref<2x1xf64>) -> !comm.future<memref<2x1xi32>, memref<2x1xf64>, memref<2x1xf64>>
  %m14 = memref.load %b9[%c0] : memref<2xmemref<2x1xi32>>
  %w16:3 = comm.wait %f13 keeping (%w5#0, %m3, %w5#1, %m10, %m11, %m12 : memref<2x1xi32>, memref<2x1xf64>, memref<2x1xf64>, memref<2x1xi32>, memref<2x1xf64>, memref<2x1xf64>) : !comm.future<memref<2x1xi32>, memref<2x1xf64>, memref<2x1xf64>>
  %w19:3 = comm.wait %f8 keeping (%w5#1, %m2, %m7, %a5, %a4 : memref<2x1xf64>, memref<2x1xi32>, memref<2x1xf64>, memref<2x1xf64>, memref<2x1xi32>) : !comm.future<memref<2x1xf64>, memref<2x1xf64>, memref<2x1xi32>>
  %m22 = memref.alloc() : memref<2x1xf64>
  %m22c = arith.constant -1.0 : f64
  linalg.fill ins(%m22c : f64) outs(%m22 : memref<2x1xf64>)
  %m23 = memref.transpose %m22 (i, j) -> (j, i) : memref<2x1xf64> to memref<1x2xf64, strided<[1, 1]>>
  %k44 = arith.constant -1.0 : f64
  linalg.fill ins(%k44 : f64) outs(%m23 : memref<1x2xf64, strided<[1, 1]>>)
  return
}

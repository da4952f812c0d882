// Tests that buffers which leave an iteration or the function are given back: more iterations, of the loop or of the whole
// function, need no more memory.

// RUN: comm-run %s --ranks 2 --summary --entry short | sed 's/:.*, peak/: peak/' > %t.short
// RUN: comm-run %s --ranks 2 --summary --entry short --iterations 100 | sed 's/:.*, peak/: peak/' > %t.repeated
// RUN: comm-run %s --ranks 2 --summary --entry long | sed 's/:.*, peak/: peak/' > %t.long
// RUN: FileCheck %s < %t.short
// RUN: diff %t.short %t.repeated
// RUN: diff %t.short %t.long

// CHECK: rank 0: peak {{[1-9][0-9]+}} bytes, 0 bytes left
// CHECK: rank 1: peak {{[1-9][0-9]+}} bytes, 0 bytes left
comm.group @world #comm.iota<[1, 2]>

func.func @short(%x: tensor<64xf32>) -> tensor<64xf32> {
  %four = arith.constant 4 : index
  %y = func.call @repeat(%x, %four) : (tensor<64xf32>, index) -> tensor<64xf32>
  return %y : tensor<64xf32>
}

func.func @long(%x: tensor<64xf32>) -> tensor<64xf32> {
  %many = arith.constant 500 : index
  %y = func.call @repeat(%x, %many) : (tensor<64xf32>, index) -> tensor<64xf32>
  return %y : tensor<64xf32>
}

// New storage leaves each iteration, through a branch, a call and an inner loop; the last one's is a result.
func.func private @repeat(%x: tensor<64xf32>, %n: index) -> tensor<64xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %y = scf.for %i = %c0 to %n step %c1 iter_args(%a = %x) -> tensor<64xf32> {
    %first = arith.cmpi eq, %i, %c0 : index
    %b = scf.if %first -> tensor<64xf32> {
      %p = comm.compute "relu"(%a) : (tensor<64xf32>) -> tensor<64xf32>
      scf.yield %p : tensor<64xf32>
    } else {
      %f = comm.all_reduce avg %a on @world : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
      %q = comm.wait %f : !comm.future<tensor<64xf32>>
      scf.yield %q : tensor<64xf32>
    }
    %e = comm.record on 0 : !comm.event
    comm.await_event %e on 0 : !comm.event
    %c = scf.for %j = %c0 to %c2 step %c1 iter_args(%d = %b) -> tensor<64xf32> {
      %p = comm.compute "neg"(%d) : (tensor<64xf32>) -> tensor<64xf32>
      scf.yield %p : tensor<64xf32>
    }
    scf.yield %c : tensor<64xf32>
  }
  return %y : tensor<64xf32>
}

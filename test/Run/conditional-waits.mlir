// Tests that what a collective has in flight keeps its memory where the wait for it does not run: no other buffer gets the
// bytes that it still writes. The delay lets everything else overtake it.

// RUN: split-file %s %t
// RUN: comm-run %t/branch.mlir --compare %t/plain.mlir --fault delay@0:ms=20
// RUN: comm-run %t/loop.mlir --compare %t/plain.mlir --fault delay@0:ms=20
// RUN: comm-run %t/switch.mlir --compare %t/plain.mlir --fault delay@0:ms=20

// A collective that nobody waits for is an error before anything runs.
// RUN: not comm-run %t/never.mlir 2>&1 | FileCheck %s
// RUN: not comm-opt %t/never.mlir --comm-lower-to-runtime 2>&1 | FileCheck %s
// CHECK: never.mlir:4:{{[0-9]+}}: error: 'comm.broadcast' op expected a wait or a future that leaves the function, got neither

//--- plain.mlir
comm.group @world #comm.iota<[1, 2]>
func.func @main(%x: tensor<65536xf32>) -> tensor<65536xf32> {
  %b = comm.compute "neg"(%x) : (tensor<65536xf32>) -> tensor<65536xf32>
  %c = comm.compute "add"(%b, %x) : (tensor<65536xf32>, tensor<65536xf32>) -> tensor<65536xf32>
  %d = comm.compute "add"(%c, %b) : (tensor<65536xf32>, tensor<65536xf32>) -> tensor<65536xf32>
  return %d : tensor<65536xf32>
}
//--- branch.mlir
comm.group @world #comm.iota<[1, 2]>
func.func @main(%x: tensor<65536xf32>) -> tensor<65536xf32> {
  %false = arith.constant false
  %a = comm.compute "exp"(%x) : (tensor<65536xf32>) -> tensor<65536xf32>
  %s = comm.broadcast %a on @world root 0 : (tensor<65536xf32>) -> !comm.future<tensor<65536xf32>>
  scf.if %false {
    %w = comm.wait %s : !comm.future<tensor<65536xf32>>
    comm.compute "sink"(%w) side_effects : (tensor<65536xf32>) -> ()
  }
  %b = comm.compute "neg"(%x) : (tensor<65536xf32>) -> tensor<65536xf32>
  %c = comm.compute "add"(%b, %x) : (tensor<65536xf32>, tensor<65536xf32>) -> tensor<65536xf32>
  %d = comm.compute "add"(%c, %b) : (tensor<65536xf32>, tensor<65536xf32>) -> tensor<65536xf32>
  return %d : tensor<65536xf32>
}
//--- loop.mlir
comm.group @world #comm.iota<[1, 2]>
func.func @main(%x: tensor<65536xf32>) -> tensor<65536xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = comm.compute "exp"(%x) : (tensor<65536xf32>) -> tensor<65536xf32>
  %s = comm.broadcast %a on @world root 0 : (tensor<65536xf32>) -> !comm.future<tensor<65536xf32>>
  scf.for %i = %c0 to %c0 step %c1 {
    %w = comm.wait %s : !comm.future<tensor<65536xf32>>
    comm.compute "sink"(%w) side_effects : (tensor<65536xf32>) -> ()
  }
  %b = comm.compute "neg"(%x) : (tensor<65536xf32>) -> tensor<65536xf32>
  %c = comm.compute "add"(%b, %x) : (tensor<65536xf32>, tensor<65536xf32>) -> tensor<65536xf32>
  %d = comm.compute "add"(%c, %b) : (tensor<65536xf32>, tensor<65536xf32>) -> tensor<65536xf32>
  return %d : tensor<65536xf32>
}
//--- switch.mlir
comm.group @world #comm.iota<[1, 2]>
func.func @main(%x: tensor<65536xf32>) -> tensor<65536xf32> {
  %c2 = arith.constant 2 : index
  %a = comm.compute "exp"(%x) : (tensor<65536xf32>) -> tensor<65536xf32>
  %s = comm.broadcast %a on @world root 0 : (tensor<65536xf32>) -> !comm.future<tensor<65536xf32>>
  scf.index_switch %c2
  case 1 {
    %w = comm.wait %s : !comm.future<tensor<65536xf32>>
    scf.yield
  }
  default {
  }
  %b = comm.compute "neg"(%x) : (tensor<65536xf32>) -> tensor<65536xf32>
  %c = comm.compute "add"(%b, %x) : (tensor<65536xf32>, tensor<65536xf32>) -> tensor<65536xf32>
  %d = comm.compute "add"(%c, %b) : (tensor<65536xf32>, tensor<65536xf32>) -> tensor<65536xf32>
  return %d : tensor<65536xf32>
}
//--- never.mlir
comm.group @world #comm.iota<[1, 2]>
func.func @main(%x: tensor<65536xf32>) -> tensor<65536xf32> {
  %a = comm.compute "exp"(%x) : (tensor<65536xf32>) -> tensor<65536xf32>
  %s = comm.broadcast %a on @world root 0 : (tensor<65536xf32>) -> !comm.future<tensor<65536xf32>>
  return %a : tensor<65536xf32>
}

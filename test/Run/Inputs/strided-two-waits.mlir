comm.group @dp #comm.iota<[1, 2]>
func.func @main(%x: memref<4x6xf32>, %c: i1) {
  %s = memref.subview %x[0, 1] [4, 3] [1, 1] : memref<4x6xf32> to memref<4x3xf32, strided<[6, 1], offset: 1>>
  // Which wait copies to the destination?
  %f = comm.all_reduce sum %s into %s on @dp : (memref<4x3xf32, strided<[6, 1], offset: 1>>) -> !comm.future<memref<4x3xf32, strided<[6, 1], offset: 1>>>
  scf.if %c {
    %w = comm.wait %f keeping (%s : memref<4x3xf32, strided<[6, 1], offset: 1>>) : !comm.future<memref<4x3xf32, strided<[6, 1], offset: 1>>>
  }
  %v = comm.wait %f keeping (%s : memref<4x3xf32, strided<[6, 1], offset: 1>>) : !comm.future<memref<4x3xf32, strided<[6, 1], offset: 1>>>
  return
}

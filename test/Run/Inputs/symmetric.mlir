// Buffers in symmetric memory.
comm.group @dp #comm.iota<[1, 2]>
func.func @main(%x: memref<64xf32>) {
  %a = memref.alloc() : memref<64xf32, #comm.symmetric<@dp>>
  comm.compute "fill"(%x, %a) mutates [1] : (memref<64xf32>, memref<64xf32, #comm.symmetric<@dp>>) -> ()
  %f = comm.all_reduce sum %a into %a on @dp : (memref<64xf32, #comm.symmetric<@dp>>) -> !comm.future<memref<64xf32, #comm.symmetric<@dp>>>
  %w = comm.wait %f keeping (%a : memref<64xf32, #comm.symmetric<@dp>>) : !comm.future<memref<64xf32, #comm.symmetric<@dp>>>
  comm.compute "use"(%w, %x) mutates [1] : (memref<64xf32, #comm.symmetric<@dp>>, memref<64xf32>) -> ()
  memref.dealloc %a : memref<64xf32, #comm.symmetric<@dp>>
  return
}

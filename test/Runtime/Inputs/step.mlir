// A small step for runs with faults: eight collectives of several kinds on two groups, with computations between them.

comm.group @world #comm.iota<[1, 4]>
comm.group @pairs #comm.ranks<[[0, 1], [2, 3]]>

func.func @main(%shard: tensor<64xf32>, %x: tensor<64xf32>) -> (tensor<64xf32>, tensor<256xf32>) {
  %f0 = comm.all_gather %shard on @world : (tensor<64xf32>) -> !comm.future<tensor<256xf32>>
  %all = comm.wait %f0 : !comm.future<tensor<256xf32>>
  %a = comm.compute "forward"(%all) : (tensor<256xf32>) -> tensor<256xf32>
  %f1 = comm.all_reduce sum %a on @world : (tensor<256xf32>) -> !comm.future<tensor<256xf32>>
  %f2 = comm.all_reduce max %x on @pairs : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  %f6 = comm.reduce_scatter sum %all on @world : (tensor<256xf32>) -> !comm.future<tensor<64xf32>>
  %f7 = comm.reduce_scatter sum %a on @world : (tensor<256xf32>) -> !comm.future<tensor<64xf32>>
  %b = comm.compute "middle"(%x) : (tensor<64xf32>) -> tensor<64xf32>
  %sum = comm.wait %f1 : !comm.future<tensor<256xf32>>
  %p = comm.wait %f6 : !comm.future<tensor<64xf32>>
  %q = comm.wait %f7 : !comm.future<tensor<64xf32>>
  %most = comm.wait %f2 : !comm.future<tensor<64xf32>>
  %f3 = comm.broadcast %b on @pairs root 1 : (tensor<64xf32>) -> !comm.future<tensor<64xf32>>
  %f4 = comm.reduce_scatter sum %sum on @world : (tensor<256xf32>) -> !comm.future<tensor<64xf32>>
  %c = comm.compute "backward"(%most) : (tensor<64xf32>) -> tensor<64xf32>
  %same = comm.wait %f3 : !comm.future<tensor<64xf32>>
  %grad = comm.wait %f4 : !comm.future<tensor<64xf32>>
  %d = comm.compute "update"(%grad, %c, %same, %p, %q)
      : (tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %f5 = comm.all_gather %d on @world : (tensor<64xf32>) -> !comm.future<tensor<256xf32>>
  %next = comm.wait %f5 : !comm.future<tensor<256xf32>>
  return %d, %next : tensor<64xf32>, tensor<256xf32>
}

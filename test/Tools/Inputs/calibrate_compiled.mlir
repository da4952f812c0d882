// Operations that are compiled into the program: some run by themselves, and some cannot.
comm.group @dp #comm.iota<[1, 2]>
#id = affine_map<(i, j) -> (i, j)>
#tr = affine_map<(i, j) -> (j, i)>
func.func @step(%x: tensor<64x64xf32>, %y: tensor<64x64xf32>, %idx: tensor<16xindex>, %d: index,
                %shard: tensor<64xf32>)
    -> (tensor<64x64xf32>, tensor<68x68xf32>, tensor<64xf32>, tensor<16xf32>, tensor<128xf32>) {
  %f = comm.all_gather %shard on @dp : (tensor<64xf32>) -> !comm.future<tensor<128xf32>>
  %cst = arith.constant 2.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %e = tensor.empty() : tensor<64x64xf32>
  %a = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<64x64xf32>, tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    %t = arith.mulf %s, %cst : f32
    linalg.yield %t : f32
  } -> tensor<64x64xf32>
  %b = linalg.generic {indexing_maps = [#id, #tr, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %y : tensor<64x64xf32>, tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = math.exp %p : f32
    %t = arith.divf %s, %q : f32
    linalg.yield %t : f32
  } -> tensor<64x64xf32>
  %pad = tensor.pad %b low[2, 2] high[2, 2] {
  ^bb0(%i: index, %j: index):
    tensor.yield %cst : f32
  } : tensor<64x64xf32> to tensor<68x68xf32>
  %r0 = tensor.empty() : tensor<64xf32>
  %r1 = linalg.fill ins(%cst : f32) outs(%r0 : tensor<64xf32>) -> tensor<64xf32>
  %r2 = linalg.reduce ins(%b : tensor<64x64xf32>) outs(%r1 : tensor<64xf32>) dimensions = [1] (%in: f32, %acc: f32) {
    %m = arith.maximumf %in, %acc : f32
    linalg.yield %m : f32
  }
  %g0 = tensor.empty() : tensor<16xf32>
  %g = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%idx : tensor<16xindex>) outs(%g0 : tensor<16xf32>) {
  ^bb0(%i: index, %o: f32):
    %v = tensor.extract %x[%i, %i] : tensor<64x64xf32>
    linalg.yield %v : f32
  } -> tensor<16xf32>
  %loop = scf.for %k = %c0 to %c64 step %c1 iter_args(%acc = %r2) -> tensor<64xf32> {
    %v = tensor.extract %b[%k, %k] : tensor<64x64xf32>
    %w = arith.addf %v, %v : f32
    %nx = tensor.insert %w into %acc[%k] : tensor<64xf32>
    scf.yield %nx : tensor<64xf32>
  }
  %loop2 = scf.for %k = %c0 to %d step %c1 iter_args(%acc = %loop) -> tensor<64xf32> {
    %v = tensor.extract %b[%k, %k] : tensor<64x64xf32>
    %nx = tensor.insert %v into %acc[%k] : tensor<64xf32>
    scf.yield %nx : tensor<64xf32>
  }
  %el = arith.addf %b, %b : tensor<64x64xf32>
  %full = comm.wait %f : !comm.future<tensor<128xf32>>
  return %el, %pad, %loop2, %g, %full : tensor<64x64xf32>, tensor<68x68xf32>, tensor<64xf32>, tensor<16xf32>, tensor<128xf32>
}

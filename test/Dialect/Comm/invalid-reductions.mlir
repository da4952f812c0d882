// RUN: comm-opt %s -verify-diagnostics --split-input-file

// Tests that reductions that break a constraint are refused. The names say which.

comm.group @dp #comm.iota<[1, 4]>
func.func @reduce_scatter_c3_divides(%x: tensor<6xf32>) {
  // expected-error @+1 {{C3: dimension 0 of 'tensor<6xf32>' does not divide by the 4 ranks of the group}}
  %f = comm.reduce_scatter sum %x on @dp : (tensor<6xf32>) -> !comm.future<tensor<1xf32>>
  return
}

// -----

comm.group @dp #comm.iota<[1, 4]>
func.func @reduce_scatter_c3_shape(%x: tensor<8xf32>) {
  // expected-error @+1 {{C3: an input of type 'tensor<8xf32>' over 4 ranks does not give a value of type 'tensor<8xf32>'}}
  %f = comm.reduce_scatter sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// -----

func.func @reduce_scatter_c4(%x: tensor<8xf32>) {
  // expected-error @+1 {{C4: an input of 'f32' for a value of 'f64'}}
  %f = comm.reduce_scatter sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<2xf64>>
  return
}

// -----

func.func @reduce_scatter_c7_scale_missing(%x: tensor<8xf32>) {
  // expected-error @+1 {{C7: 'scale' is for scaled_sum, and scaled_sum needs it}}
  %f = comm.reduce_scatter scaled_sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<2xf32>>
  return
}

// -----

func.func @reduce_scatter_c7_scale_given(%x: tensor<8xf32>) {
  // expected-error @+1 {{C7: 'scale' is for scaled_sum, and scaled_sum needs it}}
  %f = comm.reduce_scatter sum scale 0.5 %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<2xf32>>
  return
}

// -----

func.func @reduce_scatter_c7_avg_of_integers(%x: tensor<8xi32>) {
  // expected-error @+1 {{C7: avg cannot combine elements of type 'i32'}}
  %f = comm.reduce_scatter avg %x on @dp : (tensor<8xi32>) -> !comm.future<tensor<2xi32>>
  return
}

// -----

func.func @all_reduce_c1(%x: tensor<8xf32>) {
  // expected-error @+1 {{C1: 2 inputs for 1 values of the future}}
  %f = comm.all_reduce sum %x, %x on @dp : (tensor<8xf32>, tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// -----

func.func @all_reduce_c3(%x: tensor<8xf32>) {
  // expected-error @+1 {{C3: an input of type 'tensor<8xf32>' for a value of type 'tensor<4x2xf32>'}}
  %f = comm.all_reduce sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<4x2xf32>>
  return
}

// -----

func.func @all_reduce_c7_scaled_sum_of_integers(%x: tensor<8xui8>) {
  // expected-error @+1 {{C7: scaled_sum cannot combine elements of type 'ui8'}}
  %f = comm.all_reduce scaled_sum scale 0.5 %x on @dp : (tensor<8xui8>) -> !comm.future<tensor<8xui8>>
  return
}

// -----

func.func @all_reduce_c7_sum_of_booleans(%x: tensor<8xi1>) {
  // expected-error @+1 {{C7: sum cannot combine elements of type 'i1'}}
  %f = comm.all_reduce sum %x on @dp : (tensor<8xi1>) -> !comm.future<tensor<8xi1>>
  return
}

// -----

func.func @all_reduce_c7_product_of_booleans(%x: tensor<8xi1>) {
  // expected-error @+1 {{C7: product cannot combine elements of type 'i1'}}
  %f = comm.all_reduce product %x on @dp : (tensor<8xi1>) -> !comm.future<tensor<8xi1>>
  return
}

// -----

func.func @all_reduce_c7_max_of_complex(%x: tensor<8xcomplex<f32>>) {
  // expected-error @+1 {{C7: max cannot combine elements of type 'complex<f32>'}}
  %f = comm.all_reduce max %x on @dp : (tensor<8xcomplex<f32>>) -> !comm.future<tensor<8xcomplex<f32>>>
  return
}

// -----

func.func @all_reduce_c7_sum_of_vectors(%x: memref<8xvector<4xf32>>) {
  // expected-error @+1 {{C7: sum cannot combine elements of type 'vector<4xf32>'}}
  %f = comm.all_reduce sum %x into %x on @dp : (memref<8xvector<4xf32>>) -> !comm.future<memref<8xvector<4xf32>>>
  return
}

// -----

func.func @all_reduce_c7_second_member(%x: tensor<8xf32>, %y: tensor<8xi32>) {
  // expected-error @+1 {{C7: avg cannot combine elements of type 'i32'}}
  %f = comm.all_reduce avg %x, %y on @dp : (tensor<8xf32>, tensor<8xi32>) -> !comm.future<tensor<8xf32>, tensor<8xi32>>
  return
}

// -----

func.func @all_reduce_kind(%x: tensor<8xf32>) {
  // expected-error @+2 {{failed to parse Comm_ReductionAttr parameter 'value'}}
  // expected-error @+1 {{expected one of [sum, product, min, max, avg, scaled_sum] for reduction kind, got: median}}
  %f = comm.all_reduce median %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// -----

func.func @all_reduce_c8(%x: tensor<8xf32>) {
  // expected-error @+1 {{C8: 'one_shot' is for sum only}}
  %f = comm.all_reduce max %x on @dp one_shot : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// -----

func.func @all_reduce_c9(%x: tensor<8xf32>, %y: tensor<8xf32>) {
  // expected-error @+1 {{C9: 'one_shot' writes an input, which the other ranks read meanwhile}}
  %f = comm.all_reduce sum %x, %y into %y, %x on @dp one_shot : (tensor<8xf32>, tensor<8xf32>) -> !comm.future<tensor<8xf32>, tensor<8xf32>>
  return
}

// -----

func.func @reduce_c3(%x: tensor<8xf32>) {
  // expected-error @+1 {{C3: an input of type 'tensor<8xf32>' for a value of type 'tensor<2xf32>'}}
  %f = comm.reduce sum %x on @dp root 0 : (tensor<8xf32>) -> !comm.future<tensor<2xf32>>
  return
}

// -----

func.func @reduce_c7(%x: tensor<8xi64>) {
  // expected-error @+1 {{C7: avg cannot combine elements of type 'i64'}}
  %f = comm.reduce avg %x on @dp root 0 : (tensor<8xi64>) -> !comm.future<tensor<8xi64>>
  return
}

// -----

comm.group @dp #comm.iota<[2, 4]>
func.func @reduce_c8(%x: tensor<8xf32>) {
  // expected-error @+1 {{C8: 'root' 7 is no place in a group of 4}}
  %f = comm.reduce sum %x on @dp root 7 : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// RUN: comm-opt %s -verify-diagnostics --split-input-file

// Tests that reductions that break a constraint are refused. The names say which.

// expected-note @+1 {{the group has 4 ranks}}
comm.group @dp #comm.iota<[1, 4]>
func.func @reduce_scatter_c3_divides(%x: tensor<6xf32>) {
  // expected-error @+1 {{C3: expected dimension 0 of 'tensor<6xf32>' to be a multiple of the group's size (4), got 6}}
  %f = comm.reduce_scatter sum %x on @dp : (tensor<6xf32>) -> !comm.future<tensor<1xf32>>
  return
}

// -----

// expected-note @+1 {{the group has 4 ranks}}
comm.group @dp #comm.iota<[1, 4]>
func.func @reduce_scatter_c3_shape(%x: tensor<8xf32>) {
  // expected-error @+1 {{C3: expected a value of shape 2 from 'tensor<8xf32>' over 4 ranks, got 'tensor<8xf32>'}}
  %f = comm.reduce_scatter sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// -----

func.func @reduce_scatter_c4(%x: tensor<8xf32>) {
  // expected-error @+1 {{C4: expected input #0 with the element type of its value ('f64'), got 'f32'}}
  %f = comm.reduce_scatter sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<2xf64>>
  return
}

// -----

func.func @reduce_scatter_c7_scale_missing(%x: tensor<8xf32>) {
  // expected-error @+1 {{C7: expected 'scale' with scaled_sum, got none}}
  %f = comm.reduce_scatter scaled_sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<2xf32>>
  return
}

// -----

func.func @reduce_scatter_c7_scale_given(%x: tensor<8xf32>) {
  // expected-error @+1 {{C7: expected no 'scale' with sum, got one}}
  %f = comm.reduce_scatter sum scale 0.5 %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<2xf32>>
  return
}

// -----

func.func @reduce_scatter_c7_avg_of_integers(%x: tensor<8xi32>) {
  // expected-error @+1 {{C7: expected an element type that avg combines, got 'i32'}}
  %f = comm.reduce_scatter avg %x on @dp : (tensor<8xi32>) -> !comm.future<tensor<2xi32>>
  return
}

// -----

func.func @all_reduce_c1(%x: tensor<8xf32>) {
  // expected-error @+1 {{C1: expected one input per value of the future (1), got 2}}
  %f = comm.all_reduce sum %x, %x on @dp : (tensor<8xf32>, tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// -----

func.func @all_reduce_c3(%x: tensor<8xf32>) {
  // expected-error @+1 {{C3: expected value #0 to have the shape of its input, 'tensor<8xf32>', got 'tensor<4x2xf32>'}}
  %f = comm.all_reduce sum %x on @dp : (tensor<8xf32>) -> !comm.future<tensor<4x2xf32>>
  return
}

// -----

func.func @all_reduce_c7_scaled_sum_of_integers(%x: tensor<8xui8>) {
  // expected-error @+1 {{C7: expected an element type that scaled_sum combines, got 'ui8'}}
  %f = comm.all_reduce scaled_sum scale 0.5 %x on @dp : (tensor<8xui8>) -> !comm.future<tensor<8xui8>>
  return
}

// -----

func.func @all_reduce_c7_sum_of_booleans(%x: tensor<8xi1>) {
  // expected-error @+1 {{C7: expected an element type that sum combines, got 'i1'}}
  %f = comm.all_reduce sum %x on @dp : (tensor<8xi1>) -> !comm.future<tensor<8xi1>>
  return
}

// -----

func.func @all_reduce_c7_product_of_booleans(%x: tensor<8xi1>) {
  // expected-error @+1 {{C7: expected an element type that product combines, got 'i1'}}
  %f = comm.all_reduce product %x on @dp : (tensor<8xi1>) -> !comm.future<tensor<8xi1>>
  return
}

// -----

func.func @all_reduce_c7_max_of_complex(%x: tensor<8xcomplex<f32>>) {
  // expected-error @+1 {{C7: expected an element type that max combines, got 'complex<f32>'}}
  %f = comm.all_reduce max %x on @dp : (tensor<8xcomplex<f32>>) -> !comm.future<tensor<8xcomplex<f32>>>
  return
}

// -----

func.func @all_reduce_c7_sum_of_vectors(%x: memref<8xvector<4xf32>>) {
  // expected-error @+1 {{C7: expected an element type that sum combines, got 'vector<4xf32>'}}
  %f = comm.all_reduce sum %x into %x on @dp : (memref<8xvector<4xf32>>) -> !comm.future<memref<8xvector<4xf32>>>
  return
}

// -----

func.func @all_reduce_c7_second_member(%x: tensor<8xf32>, %y: tensor<8xi32>) {
  // expected-error @+1 {{C7: expected an element type that avg combines, got 'i32'}}
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
  // expected-error @+1 {{C8: expected sum with 'one_shot', got max}}
  %f = comm.all_reduce max %x on @dp one_shot : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  return
}

// -----

func.func @all_reduce_c9(%x: tensor<8xf32>, %y: tensor<8xf32>) {
  // expected-error @+1 {{C9: expected destinations other than the inputs with 'one_shot', got an input as destination #0, which other ranks may still read}}
  %f = comm.all_reduce sum %x, %y into %y, %x on @dp one_shot : (tensor<8xf32>, tensor<8xf32>) -> !comm.future<tensor<8xf32>, tensor<8xf32>>
  return
}

// -----

func.func @reduce_c3(%x: tensor<8xf32>) {
  // expected-error @+1 {{C3: expected value #0 to have the shape of its input, 'tensor<8xf32>', got 'tensor<2xf32>'}}
  %f = comm.reduce sum %x on @dp root 0 : (tensor<8xf32>) -> !comm.future<tensor<2xf32>>
  return
}

// -----

func.func @reduce_c7(%x: tensor<8xi64>) {
  // expected-error @+1 {{C7: expected an element type that avg combines, got 'i64'}}
  %f = comm.reduce avg %x on @dp root 0 : (tensor<8xi64>) -> !comm.future<tensor<8xi64>>
  return
}

// -----

// expected-note @+1 {{the group has 4 ranks}}
comm.group @dp #comm.iota<[2, 4]>
func.func @reduce_c8(%x: tensor<8xf32>) {
  // expected-error @+1 {{C8: expected 'root' from 0 to 3, got 7}}
  %f = comm.reduce sum %x on @dp root 7 : (tensor<8xf32>) -> !comm.future<tensor<8xf32>>
  return
}

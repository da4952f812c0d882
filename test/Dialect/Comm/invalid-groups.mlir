// RUN: comm-opt %s -verify-diagnostics --split-input-file --allow-unregistered-dialect

// Tests that groups, costs, futures and events that break a constraint are refused. The names say which.

// expected-error @+1 {{C1: expected at least one group, and at least one rank in each, got an empty list}}
comm.group @ranks_c1_none #comm.ranks<[]>

// -----

// expected-error @+1 {{C1: expected at least one group, and at least one rank in each, got an empty list}}
comm.group @ranks_c1_empty #comm.ranks<[[], []]>

// -----

// expected-error @+1 {{C2: expected a group of 2 ranks like the first, got 1}}
comm.group @ranks_c2 #comm.ranks<[[0, 1], [2]]>

// -----

// expected-error @+1 {{C2: expected a group of 2 ranks like the first, got 0}}
comm.group @ranks_c2_empty #comm.ranks<[[0, 1], []]>

// -----

// expected-error @+1 {{C3: rank 1 appears twice}}
comm.group @ranks_c3_twice #comm.ranks<[[0, 1], [1, 2]]>

// -----

// expected-error @+1 {{C3: expected ranks from 0 to 3, got 4}}
comm.group @ranks_c3_missing #comm.ranks<[[0, 1], [2, 4]]>

// -----

// expected-error @+1 {{C3: expected ranks from 0 to 1, got -1}}
comm.group @ranks_c3_negative #comm.ranks<[[0, -1]]>

// -----

// expected-error @+1 {{integer value too large}}
comm.group @ranks_huge #comm.ranks<[[0, 99999999999999999999]]>

// -----

// expected-error @+1 {{C1: expected two numbers, [groups, size], got 1}}
comm.group @iota_c1_shape #comm.iota<[8]>

// -----

// expected-error @+1 {{C1: expected positive numbers with a product below 2^31, got 0 groups of 8 ranks}}
comm.group @iota_c1_zero #comm.iota<[0, 8]>

// -----

// expected-error @+1 {{C1: expected positive numbers with a product below 2^31, got -1 groups of -8 ranks}}
comm.group @iota_c1_negative #comm.iota<[-1, -8]>

// -----

// expected-error @+1 {{C1: expected positive numbers with a product below 2^31, got 4294967296 groups of 4294967296 ranks}}
comm.group @iota_c1_overflow #comm.iota<[4294967296, 4294967296]>

// -----

// expected-error @+1 {{C1: expected positive numbers with a product below 2^31, got 65536 groups of 65536 ranks}}
comm.group @iota_c1_product #comm.iota<[65536, 65536]>

// -----

// expected-error @+1 {{C1: expected positive dimensions with a product below 2^31, got dimension 4611686018427387904}}
comm.group @iota_c1_dim #comm.iota<[1, 4] from [4611686018427387904, 4]>

// -----

// expected-error @+1 {{C1: expected positive dimensions with a product below 2^31, got dimension 0}}
comm.group @iota_c1_dim_zero #comm.iota<[1, 4] from [0, 4]>

// -----

// expected-error @+1 {{C1: expected as many ranks as the product of the dimensions (12), got 2 groups of 4}}
comm.group @iota_c1_mismatch #comm.iota<[2, 4] from [3, 4]>

// -----

// expected-error @+1 {{C2: expected a permutation of 2 axes, got 1 entries}}
comm.group @iota_c2_count #comm.iota<[2, 4] from [4, 2] transpose [0]>

// -----

// expected-error @+1 {{C2: axis 0 appears twice}}
comm.group @iota_c2_twice #comm.iota<[2, 4] from [4, 2] transpose [0, 0]>

// -----

// expected-error @+1 {{C2: expected axes from 0 to 1, got 2}}
comm.group @iota_c2_range #comm.iota<[2, 4] from [4, 2] transpose [2, 0]>

// -----

// expected-error @+1 {{C1: expected replica groups (#comm.ranks or #comm.iota), got 4 : i64}}
comm.group @group_c1 4 : i64

// -----

comm.group @twice #comm.iota<[1, 4]> // expected-note {{see existing symbol definition here}}
// expected-error @+1 {{redefinition of symbol named 'twice'}}
comm.group @twice #comm.iota<[1, 2]>

// -----

func.func @group_outside_a_symbol_table() {
  // expected-error @+1 {{symbol's parent must have the SymbolTable trait}}
  comm.group @g #comm.iota<[1, 4]>
  return
}

// -----

// expected-error @+1 {{C1: expected ranked tensors and memrefs in a future, got 'f32'}}
func.func private @future_c1_scalar(!comm.future<f32>)

// -----

// expected-error @+1 {{C1: expected ranked tensors and memrefs in a future, got 'tensor<*xf32>'}}
func.func private @future_c1_unranked(!comm.future<tensor<4xf32>, tensor<*xf32>>)

// -----

// expected-error @+1 {{C1: expected ranked tensors and memrefs in a future, got '!comm.future<>'}}
func.func private @future_c1_future(!comm.future<!comm.future<>>)

// -----

// expected-error @+1 {{C1: expected non-negative numbers, got -1}}
"test.op"() {comm.cost = #comm.cost<flops = -1>} : () -> ()

// -----

// expected-error @+1 {{C1: expected non-negative numbers, got -5}}
"test.op"() {comm.cost = #comm.cost<flops = 1, time = -5>} : () -> ()

// -----

// expected-error @+1 {{C2: expected 'time', 'time_lo' and 'time_hi' together}}
"test.op"() {comm.cost = #comm.cost<time = 5, time_lo = 4>} : () -> ()

// -----

// expected-error @+1 {{C2: expected 'time', 'time_lo' and 'time_hi' together}}
"test.op"() {comm.cost = #comm.cost<time_lo = 4, time_hi = 6>} : () -> ()

// -----

// expected-error @+1 {{C2: expected 'time' (7) between 'time_lo' (4) and 'time_hi' (6)}}
"test.op"() {comm.cost = #comm.cost<time = 7, time_lo = 4, time_hi = 6>} : () -> ()

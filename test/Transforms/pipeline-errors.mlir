// RUN: not comm-opt %s --reorder-comm-overlap="passes=comm-schedule,no-such-pass" 2>&1 | FileCheck %s --check-prefix=PASS
// RUN: not comm-opt %s --reorder-comm-overlap="passes=comm-bucket{no-such-option=1}" 2>&1 | FileCheck %s --check-prefix=PASSOPTION
// RUN: not comm-opt %s --reorder-comm-overlap="passes=canonicalize{max-iterations=x}" 2>&1 | FileCheck %s --check-prefix=FOREIGN
// RUN: not comm-opt %s --reorder-comm-overlap="machine=no-such-machine" 2>&1 | FileCheck %s --check-prefix=MACHINE
// RUN: not comm-opt %s --reorder-comm-overlap="memory-budget-ratio=-1.5" 2>&1 | FileCheck %s --check-prefix=BUDGET
// RUN: not comm-opt %s --reorder-comm-overlap="memory-limit-bytes=-7" 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// RUN: not comm-opt %s --reorder-comm-overlap="no-such-option=1" 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not comm-opt %s --reorder-comm-overlap="objective=none" 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not comm-opt %s --reorder-comm-overlap="passes=comm-align-costs profiles=nowhere" 2>&1 | FileCheck %s --check-prefix=PROFILE
// RUN: not comm-opt %s --reorder-comm-overlap="memory-limit-bytes=16" 2>&1 | FileCheck %s --check-prefix=LIMIT
// RUN: not comm-opt %s --reorder-comm-overlap="time-budget-ratio=0.1 passes=comm-bucket" 2>&1 | FileCheck %s --check-prefix=READER
// RUN: not comm-opt %s --reorder-comm-overlap="time-budget-ratio=0.1 limit=arena" 2>&1 | FileCheck %s --check-prefix=ARENA
// RUN: not comm-opt %s --reorder-comm-overlap="time-budget-ratio=nan" 2>&1 | FileCheck %s --check-prefix=NAN
// RUN: not comm-opt %s --comm-schedule="time-budget-ratio=1e7" 2>&1 | FileCheck %s --check-prefix=RATIO

// Tests that bad options get one clear line, and that a limit that no order meets is an error that says by how much.
comm.group @dp #comm.iota<[1, 4]>

func.func @f(%w: tensor<16xf32>) -> tensor<64xf32> {
  %f = comm.all_gather %w on @dp : (tensor<16xf32>) -> !comm.future<tensor<64xf32>>
  %g = comm.wait %f : !comm.future<tensor<64xf32>>
  return %g : tensor<64xf32>
}

// PASS: error: reorder-comm-overlap: cannot run 'no-such-pass' of 'passes': 'no-such-pass' does not refer to a registered pass or pass pipeline; any registered pass can be named, and of this project comm-schedule, {{.*}}comm-align-costs{{.*}}comm-report{{$}}
// PASS-NOT: {{.}}
// PASSOPTION: error: {{.*}}no-such-option
// FOREIGN: error: {{.*}}max-iterations
// MACHINE: no-such-machine
// BUDGET: error: reorder-comm-overlap: memory-budget-ratio=-1.50: expected a fraction above -1 and at most 1e6
// LIMIT: error: cannot reduce peak memory to the limit of 16 B (16 bytes); lowest peak of all orders: 256 B (240 bytes over)
// The whole function is not printed behind it.
// LIMIT-NOT: see current operation
// NEGATIVE: error: reorder-comm-overlap: memory-limit-bytes=-7: expected a number of bytes, or -1 for no limit
// OPTION: error: reorder-comm-overlap: unknown option 'no-such-option'; expected allow-reassociation, assume-pure, bucket-cap-bytes, {{.*}} or timeline-file{{$}}
// VALUE: error: reorder-comm-overlap: objective=none: expected robust, regret or makespan{{$}}
// READER: error: reorder-comm-overlap: 'time-budget-ratio=0.10' has no effect with 'passes=comm-bucket': only comm-schedule reads it{{$}}
// ARENA: error: 'time-budget-ratio' has no effect with 'limit=arena'{{$}}
// NAN: error: time-budget-ratio=nan: expected a fraction of at most 1e6, or a negative number
// RATIO: error: time-budget-ratio=10000000.00: expected a fraction of at most 1e6, or a negative number
// PROFILE: error: machine 'nowhere': expected the path of a .json file or one of 

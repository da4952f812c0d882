// RUN: not comm-opt %s --reorder-comm-overlap="scenarios=-1" 2>&1 | FileCheck %s --check-prefix=COUNT
// RUN: not comm-opt %s --comm-report="scenarios=2 collective-spread-permille=5000" 2>&1 | FileCheck %s --check-prefix=SPREAD
// RUN: not comm-opt %s --comm-report="scenarios=2 compute-spread-permille=-1" 2>&1 | FileCheck %s --check-prefix=REPORT
// RUN: not comm-opt %s --comm-scenarios=many --comm-report=%t.json 2>&1 | FileCheck %s --check-prefix=FLAG
// RUN: not comm-opt %s --comm-scenarios=5000 --comm-report=%t.json 2>&1 | FileCheck %s --check-prefix=RANGE

// Tests that bad options of noise get one clear line.
module {}

// COUNT: error: reorder-comm-overlap: expected scenarios from 0 to 4096, got -1
// SPREAD: error: expected collective-spread-permille from 0 to 1000, got 5000
// REPORT: error: expected compute-spread-permille from 0 to 1000, got -1
// FLAG: error: --comm-scenarios: expected a number, got 'many'
// RANGE: error: --comm-scenarios: expected scenarios from 0 to 4096, got 5000

// RUN: not comm-opt %s --comm-report="machine=no-such-machine" 2>&1 | FileCheck %s --check-prefix=MACHINE
// RUN: not comm-opt %s --comm-report="table=false report-file=/no/such/folder/r.json" 2>&1 | FileCheck %s --check-prefix=FILE

// Tests that a profile that is not there and a file that cannot be written are errors.
module {}

// MACHINE: error: {{.*}}no-such-machine
// FILE: error: cannot write '/no/such/folder/r.json'

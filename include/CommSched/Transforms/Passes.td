//===- Passes.td - The project's passes ------------------------------------*- tablegen -*-===//
#ifndef COMMSCHED_TRANSFORMS_PASSES
#define COMMSCHED_TRANSFORMS_PASSES

include "mlir/Pass/PassBase.td"

/// The machine whose costs a pass believes.
def MachineOption : Option<"machine", "machine", "std::string", "\"h100-sxm\"",
                             "machine profile: the name of a shipped one, or a path">;

//===--------------------------------------------------------------------------------------===//
// Looking
//===--------------------------------------------------------------------------------------===//

def CommReport : Pass<"comm-report", "::mlir::ModuleOp"> {
  let summary = "report makespan, exposed communication, peak memory and lower bounds";
  let description = [{
    Measures every block with collectives by the models and prints a table to standard error. Changes nothing but the
    `comm.schedule_signature` of functions. Within the pipeline `reorder-comm-overlap` one report covers what was before
    the pipeline and what is after it.
  }];
  let options = [
    MachineOption,
    Option<"reportFile", "report-file", "std::string", "\"\"", "write the report as JSON to this file">,
    Option<"timelineFile", "timeline-file", "std::string", "\"\"",
           "write the timeline to this file: a page where it ends in .html, a Perfetto trace otherwise">,
    Option<"table", "table", "bool", "true", "print the table to standard error">,
  ];
}

def CommVerify : Pass<"comm-verify", "::mlir::ModuleOp"> {
  let summary = "check that collectives are waited for, their buffers are left alone, and ranks agree";
  let description = [{
    An error for each of these, at its place:
    - a future that nobody waits for and that does not leave the function;
    - a wait that no path reaches;
    - a buffer in flight that is written, or a destination that is read, between a start and its first wait;
    - a collective under control flow that depends on the rank: not all ranks would come to it.

    Stamps `comm.schedule_signature`, the hash of the sequence of collectives, on every function that has any.
  }];
}

#endif // COMMSCHED_TRANSFORMS_PASSES

//===- PipelineOptions.h - Options of reorder-comm-overlap ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Checks of the options of the pipeline, with messages that name what to write instead. Internal to Pipelines.cpp.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_PIPELINES_PIPELINEOPTIONS_H
#define COMMSCHED_LIB_TRANSFORMS_PIPELINES_PIPELINEOPTIONS_H

#include "CommSched/Transforms/Pipelines.h"

namespace commsched {

/// Whether an entry of `passes`, or a nested pipeline in one, names `pass`.
bool isNamed(llvm::StringRef pass, llvm::ArrayRef<std::string> passes);

/// Checks that something reads every option that asks for something. `passes`: what runs, each with its own options.
/// Returns what has no effect and which other option is the reason; empty if nothing is wrong.
std::string checkReaders(const OverlapOptions &options, llvm::ArrayRef<std::string> passes);

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_PIPELINES_PIPELINEOPTIONS_H

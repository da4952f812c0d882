//===- SearchTerminal.h - Progress and interruption of long searches --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// If standard error is a terminal, a search that takes longer than a second shows how far it is in one line, which is
// gone at its end. The first interrupt (Ctrl-C) ends all searches with the best answers so far, which are then written
// as usual; a second one ends the tool.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TOOLS_COMMOPT_SEARCHTERMINAL_H
#define COMMSCHED_TOOLS_COMMOPT_SEARCHTERMINAL_H

#include "mlir/IR/DialectRegistry.h"

namespace commsched {

/// Makes every context that is made from `registry` show the progress of its searches, and end them on an interrupt.
void watchSearches(mlir::DialectRegistry &registry);

} // namespace commsched

#endif // COMMSCHED_TOOLS_COMMOPT_SEARCHTERMINAL_H

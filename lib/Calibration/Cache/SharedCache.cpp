//===- SharedCache.cpp - A cache that all ranks of a job share --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "SharedCache.h"

using namespace commsched;

/// The longest wait for another process that writes the cache.
static constexpr std::chrono::seconds kLockDeadline(30);

llvm::Error SharedCache::give(const std::string &text, bool isStored,
                              llvm::function_ref<llvm::Error(llvm::StringRef)> take) {
  llvm::Expected<std::string> shared = broadcastText(bench, text);
  if (!shared)
    return shared.takeError();
  if (shared->empty())
    return llvm::Error::success();
  std::string reason = llvm::toString(take(*shared));
  if (!reason.empty() && isStored && bench.rank() == 0) {
    cache->setAside();
    warnings.push_back("'" + cache->path() + "' is set aside and measured anew: " + reason);
  }
  return llvm::Error::success();
}

llvm::Error SharedCache::read(bool fresh, llvm::function_ref<llvm::Error(llvm::StringRef)> take) {
  bool reads = bench.rank() == 0 && cache && !fresh;
  return give(reads ? cache->load().value_or("") : "", /*isStored=*/reads, take);
}

llvm::Error SharedCache::share(const std::string &text, llvm::function_ref<llvm::Error(llvm::StringRef)> take) {
  return give(text, /*isStored=*/false, take);
}

void SharedCache::write(llvm::function_ref<std::string(std::optional<std::string>)> merge) {
  if (!cache || bench.rank() != 0)
    return;
  if (llvm::Error error = cache->update(merge, kLockDeadline))
    warnings.push_back("nothing is kept: " + llvm::toString(std::move(error)));
}

//===- MachineModel.cpp - Lookup of machine profiles and rates --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Finds profiles by name on a short search path, or reads them from a path. MachineProfile.cpp checks their contents.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Machine/MachineModel.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include <set>

using namespace commsched;

static constexpr llvm::StringLiteral kElementNames[kNumElementTypes] = {"f64", "f32", "tf32", "bf16", "f16", "f8",
                                                                        "f4",  "i64", "i32",  "i16",  "i8",  "other"};

llvm::StringRef commsched::stringify(ElementType type) { return kElementNames[static_cast<unsigned>(type)]; }

llvm::StringRef commsched::stringify(Against against) { return against == Against::Matrix ? "matrix" : "memory"; }

std::optional<ElementType> commsched::parseElementType(llvm::StringRef name) {
  const auto *found = llvm::find(kElementNames, name);
  if (found == std::end(kElementNames))
    return std::nullopt;
  return static_cast<ElementType>(found - std::begin(kElementNames));
}

std::vector<std::string> MachineModel::searchPath() {
  std::vector<std::string> path;
  if (std::optional<std::string> variable = llvm::sys::Process::GetEnv("COMMSCHED_MACHINE_PATH")) {
    llvm::SmallVector<llvm::StringRef> directories;
    llvm::StringRef(*variable).split(directories, ':', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
    for (llvm::StringRef directory : directories)
      path.push_back(directory.str());
  }
  // An installation may have moved: look beside the program first.
  static char anchor;
  llvm::SmallString<256> beside(llvm::sys::fs::getMainExecutable(nullptr, &anchor));
  if (!beside.empty()) {
    llvm::sys::path::remove_filename(beside);
    llvm::sys::path::append(beside, "..", "share", "commsched", "machines");
    path.push_back(beside.str().str());
  }
  path.push_back(COMMSCHED_INSTALLED_MACHINES);
  path.push_back(COMMSCHED_SOURCE_MACHINES);
  return path;
}

std::vector<std::string> MachineModel::available() {
  std::set<std::string> names;
  for (const std::string &directory : searchPath()) {
    std::error_code error;
    for (llvm::sys::fs::directory_iterator it(directory, error), end; it != end && !error; it.increment(error))
      if (llvm::sys::path::extension(it->path()) == ".json")
        names.insert(llvm::sys::path::stem(it->path()).str());
  }
  return {names.begin(), names.end()};
}

/// Reads a profile from a file.
static llvm::Expected<MachineModel> loadFile(llvm::StringRef path) {
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/true);
  if (!buffer)
    return llvm::createStringError(buffer.getError(), "machine '" + path + "': " + buffer.getError().message());
  return MachineModel::parse((*buffer)->getBuffer(), path);
}

llvm::Expected<MachineModel> MachineModel::load(llvm::StringRef nameOrPath) {
  if (nameOrPath.contains('/') || nameOrPath.ends_with(".json"))
    return loadFile(nameOrPath);
  for (const std::string &directory : searchPath()) {
    llvm::SmallString<256> path(directory);
    llvm::sys::path::append(path, nameOrPath + ".json");
    if (llvm::sys::fs::is_regular_file(path))
      return loadFile(path);
  }
  return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                 "machine '" + nameOrPath + "': expected the path of a .json file or one of " +
                                     llvm::join(available(), ", ") + " (COMMSCHED_MACHINE_PATH adds directories)");
}

/// The rate for a type, or for the type in which hardware without it computes. A profile always has f32.
static int64_t lookup(const RateTable &rates, ElementType type) {
  using E = ElementType;
  auto first = [&](std::initializer_list<ElementType> candidates) -> int64_t {
    for (ElementType candidate : candidates)
      if (int64_t rate = rates[static_cast<unsigned>(candidate)])
        return rate;
    return 0;
  };
  switch (type) {
  case E::F4:
    return first({E::F4, E::F8, E::BF16, E::F16, E::F32});
  case E::F8:
    return first({E::F8, E::BF16, E::F16, E::F32});
  case E::BF16:
  case E::F16:
    return first({type, E::BF16, E::F16, E::F32});
  default:
    return first({type, E::F32});
  }
}

bool MachineModel::hasErrorBars() const {
  return llvm::any_of(ops, [](const OpTime &op) { return op.hasErrorBar(); }) ||
         llvm::any_of(collectives, [](const CollectiveTable &table) {
           return llvm::any_of(table.points, [](const MeasuredPoint &point) { return point.hasErrorBar(); });
         });
}

int64_t MachineModel::matrixRate(ElementType type) const { return lookup(sustainedRates, type); }

int64_t MachineModel::matrixPeak(ElementType type) const { return lookup(peakRates, type); }

int64_t MachineModel::matrixHalfFlops(ElementType type) const { return lookup(halfFlops, type); }

int64_t MachineModel::vectorRate(ElementType type) const {
  int64_t rate = lookup(vectorRates, type);
  return rate ? rate : lookup(sustainedRates, ElementType::F32);
}

//===- KernelCompiler.cpp - The runtime's kernels as machine code -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A file of the cache is the code and, behind it, 16 digits: a hash of the code, so that a damaged file is compiled
// again. It is written beside its place and renamed. Whatever goes wrong with the cache is no error.
//
//===------------------------------------------------------------------------------------------===//

#include "KernelCompiler.h"
#include "Core/Support/Guarded.h"
#include "Kernels/Device/Functions.h"
#include "Kernels/Device/Image.h"
#include "SymbolTable.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

using namespace commsched::runtime;

/// No contraction: a product and a sum are rounded apart, as on the host.
static constexpr const char *options[] = {"--fmad=false", "--std=c++17"};

//===- Cache ---------------------------------------------------------------------------------===//

static uint64_t hashOf(const std::string &text, uint64_t hash = 0) {
  for (char c : text)
    hash = device::mix(hash, static_cast<unsigned char>(c));
  return device::mix(hash, text.size());
}

static std::string digits(uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

static std::string cacheFolder() {
  auto variable = [](const char *name) {
    const char *value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (std::string given = variable("COMMRT_KERNEL_CACHE"); !given.empty())
    return given;
  std::string base = variable("XDG_CACHE_HOME");
  if (base.empty() && !variable("HOME").empty())
    base = variable("HOME") + "/.cache";
  return base.empty() ? "" : base + "/commsched/kernels";
}

std::string commsched::runtime::kernelCacheFile(int capability) {
  std::string folder = cacheFolder();
  if (folder.empty())
    return "";
  uint64_t low = 0, high = 1;
  auto add = [&](const char *text) {
    low = hashOf(text, low);
    high = hashOf(text, high);
  };
  for (int i = 0; i < device::numSourceFiles; ++i) {
    add(device::sourceFiles[i].name);
    add(device::sourceFiles[i].text);
  }
  for (const char *option : options)
    add(option);
  return folder + "/" + digits(high) + digits(low) + "-sm_" + std::to_string(capability);
}

/// False if there is no such file, or a damaged one.
static bool readCache(const std::string &path, std::string &code) {
  FILE *file = path.empty() ? nullptr : std::fopen(path.c_str(), "rb");
  if (!file)
    return false;
  std::string bytes;
  char block[1 << 16];
  while (size_t count = std::fread(block, 1, sizeof(block), file))
    bytes.append(block, count);
  std::fclose(file);
  constexpr size_t hashDigits = 16;
  if (bytes.size() <= hashDigits)
    return false;
  code = bytes.substr(0, bytes.size() - hashDigits);
  return bytes.substr(code.size()) == digits(hashOf(code));
}

/// Like mkdir -p; only the user may look into new folders.
static void makeFolders(const std::string &path) {
  for (size_t at = 1; at != std::string::npos;) {
    at = path.find('/', at + 1);
    mkdir(path.substr(0, at).c_str(), 0700);
  }
}

static void writeCache(const std::string &path, const std::string &code) {
  if (path.empty())
    return;
  makeFolders(path.substr(0, path.rfind('/')));
  std::string temporary = path + ".XXXXXX";
  int descriptor = mkstemp(temporary.data()); // mode 0600
  if (descriptor < 0)
    return;
  std::string bytes = code + digits(hashOf(code));
  bool isWritten = true;
  for (size_t at = 0; isWritten && at < bytes.size();) {
    ssize_t count = write(descriptor, bytes.data() + at, bytes.size() - at);
    isWritten = count > 0;
    at += isWritten ? count : 0;
  }
  isWritten &= fsync(descriptor) == 0;
  isWritten &= close(descriptor) == 0;
  if (!isWritten || rename(temporary.c_str(), path.c_str()) != 0)
    unlink(temporary.c_str());
}

//===- NVRTC ---------------------------------------------------------------------------------===//

static SymbolLibrary describe(NvrtcApi &api) {
  return {"NVRTC",
          "COMMRT_NVRTC_LIBRARY",
          {"libnvrtc.so.13", "libnvrtc.so.12"},
          {
              {"nvrtcVersion", slotOf(api.version)},
              {"nvrtcGetErrorString", slotOf(api.getErrorString)},
              {"nvrtcGetNumSupportedArchs", slotOf(api.getNumSupportedArchs)},
              {"nvrtcGetSupportedArchs", slotOf(api.getSupportedArchs)},
              {"nvrtcCreateProgram", slotOf(api.createProgram)},
              {"nvrtcDestroyProgram", slotOf(api.destroyProgram)},
              {"nvrtcCompileProgram", slotOf(api.compileProgram)},
              {"nvrtcGetPTXSize", slotOf(api.getPtxSize)},
              {"nvrtcGetPTX", slotOf(api.getPtx)},
              {"nvrtcGetCUBINSize", slotOf(api.getCubinSize)},
              {"nvrtcGetCUBIN", slotOf(api.getCubin)},
              {"nvrtcGetProgramLogSize", slotOf(api.getProgramLogSize)},
              {"nvrtcGetProgramLog", slotOf(api.getProgramLog)},
          }};
}

/// NVRTC looks for a second library by the loader's path, where that of a Python package is not: it is loaded from the
/// folder of the first.
static void loadBuiltins(const NvrtcApi &nvrtc) {
  int major = 0, minor = 0;
  Dl_info info;
  if (nvrtc.version(&major, &minor) || !dladdr(reinterpret_cast<void *>(nvrtc.version), &info) || !info.dli_fname)
    return;
  std::string path = info.dli_fname, name = std::to_string(major) + "." + std::to_string(minor);
  dlopen((path.substr(0, path.rfind('/') + 1) + "libnvrtc-builtins.so." + name).c_str(), RTLD_NOW | RTLD_LOCAL);
}

/// The newest architecture that NVRTC knows and the device runs; 0 if there is none.
static int findArchitecture(const NvrtcApi &nvrtc, int capability) {
  int count = 0, best = 0;
  if (nvrtc.getNumSupportedArchs(&count) || count <= 0)
    return 0;
  std::vector<int> archs(count);
  if (nvrtc.getSupportedArchs(archs.data()))
    return 0;
  for (int arch : archs)
    if (arch <= capability)
      best = std::max(best, arch);
  return best;
}

/// The first line of the compiler's log with an error in it.
static std::string firstError(const NvrtcApi &nvrtc, nvrtcProgram *program) {
  size_t size = 0;
  if (nvrtc.getProgramLogSize(program, &size) || size == 0)
    return "";
  std::string log(size, '\0');
  if (nvrtc.getProgramLog(program, log.data()))
    return "";
  size_t begin = log.find("error"), line = begin == std::string::npos ? 0 : log.rfind('\n', begin) + 1;
  return log.substr(line, log.find_first_of(std::string("\n\0", 2), line) - line);
}

/// Compiles the program for an architecture; machine code if that is the device's own.
static std::string compile(const NvrtcApi &nvrtc, nvrtcProgram *program, int arch, bool isOwn, std::string &code) {
  std::string target = std::string("--gpu-architecture=") + (isOwn ? "sm_" : "compute_") + std::to_string(arch);
  std::vector<const char *> all(std::begin(options), std::end(options));
  all.push_back(target.c_str());
  if (int result = nvrtc.compileProgram(program, static_cast<int>(all.size()), all.data()))
    return std::string("NVRTC cannot compile the kernels for ") + target.substr(target.find('=') + 1) + ": " +
           nvrtc.getErrorString(result) + ": " + firstError(nvrtc, program);
  size_t size = 0;
  int result = isOwn ? nvrtc.getCubinSize(program, &size) : nvrtc.getPtxSize(program, &size);
  code.assign(size, '\0');
  result = result ? result : isOwn ? nvrtc.getCubin(program, code.data()) : nvrtc.getPtx(program, code.data());
  return result ? std::string("NVRTC gives no code: ") + nvrtc.getErrorString(result) : "";
}

std::string commsched::runtime::compileKernelsAnew(int capability, std::string &code) {
  std::string path = kernelCacheFile(capability);
  if (readCache(path, code))
    return "";
  NvrtcApi nvrtc = {};
  void *handle = nullptr;
  if (std::string error = loadSymbols(describe(nvrtc), &handle); !error.empty())
    return error;
  loadBuiltins(nvrtc);
  std::string error;
  std::vector<const char *> texts, names;
  for (int i = 1; i < device::numSourceFiles; ++i) {
    texts.push_back(device::sourceFiles[i].text);
    names.push_back(device::sourceFiles[i].name);
  }
  nvrtcProgram *program = nullptr;
  int arch = findArchitecture(nvrtc, capability);
  if (arch == 0)
    error = "NVRTC knows no architecture up to sm_" + std::to_string(capability);
  else if (int result = nvrtc.createProgram(&program, device::sourceFiles[0].text, device::sourceFiles[0].name,
                                            static_cast<int>(texts.size()), texts.data(), names.data()))
    error = std::string("nvrtcCreateProgram failed: ") + nvrtc.getErrorString(result);
  else
    error = compile(nvrtc, program, arch, arch == capability, code);
  if (program)
    nvrtc.destroyProgram(&program);
  dlclose(handle);
  // PTX of an older NVRTC shall not stay when a newer one comes.
  if (error.empty() && arch == capability)
    writeCache(path, code);
  return error;
}

std::string commsched::runtime::compileKernels(int capability, std::string &code) {
  static Mutex mutex;
  static std::map<int, std::pair<std::string, std::string>> known COMMRT_GUARDED_BY(mutex); // error and code
  Lock lock(mutex);
  auto [entry, isNew] = known.try_emplace(capability);
  auto &[error, found] = entry->second;
  if (isNew)
    error = compileKernelsAnew(capability, found);
  code = found;
  return error;
}

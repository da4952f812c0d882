# How every target of the project is built: where MLIR is, which flags hold everywhere, one precompiled header,
# and the three functions that the CMakeLists.txt files below use.

# MLIR_DIR and CMAKE_PREFIX_PATH, as variables of CMake or of the environment, win; Debian's packages are looked for last. LLVM is
# then the one beside that MLIR.
find_package(MLIR REQUIRED CONFIG PATHS /usr/lib/llvm-22)
option(COMMSCHED_ANY_LLVM "Build with another LLVM than 22, on which nothing has been tested (scripts/test-llvm-main.sh)" OFF)
if(NOT LLVM_PACKAGE_VERSION MATCHES "^22\\." AND NOT COMMSCHED_ANY_LLVM)
  message(FATAL_ERROR "CommSched builds against LLVM/MLIR 22, found ${LLVM_PACKAGE_VERSION} in ${MLIR_DIR}")
endif()
list(APPEND CMAKE_MODULE_PATH "${MLIR_CMAKE_DIR}" "${LLVM_CMAKE_DIR}")
include(TableGen)
include(AddLLVM)
include(AddMLIR)

set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Installed tools find libMLIR where it was linked from, and our own shared libraries beside them.
set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};$ORIGIN")
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
if(NOT CMAKE_INSTALL_LIBDIR STREQUAL "lib")
  list(APPEND CMAKE_INSTALL_RPATH "$ORIGIN/../lib") # where the build tree has them
endif()
# The build tree has the same paths, so that installing rewrites nothing: to make room for a longer one CMake would fill the path
# of the build tree up with colons, and an empty element is the current folder.
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)

# LLVM_DEFINITIONS is one string; add_definitions wants a list.
separate_arguments(COMMSCHED_LLVM_DEFINITIONS NATIVE_COMMAND ${LLVM_DEFINITIONS})
add_definitions(${COMMSCHED_LLVM_DEFINITIONS})
include_directories(SYSTEM ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
include_directories("${PROJECT_SOURCE_DIR}/include" "${PROJECT_BINARY_DIR}/include")
add_compile_options(-Wall -Wextra -Wno-unused-parameter $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-deprecated-declarations>)
else()
  # Pragmas of clang only tune loops. gcc finds a move redundant that clang needs in C++17 to make an Expected of an Error.
  add_compile_options(-Wno-unknown-pragmas $<$<COMPILE_LANGUAGE:CXX>:-Wno-redundant-move>)
endif()

if(COMMSCHED_SANITIZE)
  # The checks of single accesses would be a quarter of the compile time. The address sanitizer finds accesses through null and
  # outside of objects; misaligned ones are not found. vptr and function need run-time type information.
  add_compile_options(-fsanitize=${COMMSCHED_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
    -fno-sanitize=vptr,function,null,alignment,object-size,pointer-overflow,nonnull-attribute,returns-nonnull-attribute)
  add_link_options(-fsanitize=${COMMSCHED_SANITIZE})
endif()

find_program(COMMSCHED_CCACHE ccache)
if(COMMSCHED_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness that lets ccache work with a precompiled header.
  set(COMMSCHED_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${COMMSCHED_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${COMMSCHED_LAUNCHER})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${COMMSCHED_LAUNCHER})
endif()

# One precompiled header for every target that sees MLIR.
if(COMMSCHED_ENABLE_PCH)
  file(WRITE "${PROJECT_BINARY_DIR}/CommSchedPCH.cpp.in" "// Carries the precompiled header.\n")
  configure_file("${PROJECT_BINARY_DIR}/CommSchedPCH.cpp.in" "${PROJECT_BINARY_DIR}/CommSchedPCH.cpp" COPYONLY)
  add_library(CommSchedPCH OBJECT "${PROJECT_BINARY_DIR}/CommSchedPCH.cpp")
  target_precompile_headers(CommSchedPCH PRIVATE "${PROJECT_SOURCE_DIR}/cmake/CommSchedPCH.h")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
    target_compile_options(CommSchedPCH PRIVATE -Xclang -fno-pch-timestamp)
  endif()
endif()

function(commsched_use_pch target)
  if(COMMSCHED_ENABLE_PCH)
    target_precompile_headers(${target} REUSE_FROM CommSchedPCH)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "EXECUTABLE")
      # The header was compiled with -fPIC, and CMake would compile an executable with -fPIE.
      set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${target} PRIVATE -fPIC)
    endif()
  endif()
endfunction()

# commsched_library(NAME SOURCES a.cpp ... [DEPENDS tablegen-target ...] [LINK library ...] [PLAIN])
# A static, position-independent, installed and exported library. PLAIN: it sees LLVM's support library at most, no MLIR.
function(commsched_library name)
  cmake_parse_arguments(ARG "PLAIN" "" "SOURCES;DEPENDS;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
  if(NOT ARG_PLAIN)
    commsched_use_pch(${name})
  endif()
  target_include_directories(${name} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  install(TARGETS ${name} EXPORT CommSchedTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

# commsched_tool(NAME SOURCES a.cpp ... LINK library ...): an installed executable over the MLIR and LLVM shared libraries.
function(commsched_tool name)
  cmake_parse_arguments(ARG "" "MAIN" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${PROJECT_SOURCE_DIR}/tools/Main.cpp ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF COMMSCHED_MAIN ${ARG_MAIN})
  target_compile_definitions(${name} PRIVATE COMMSCHED_TOOL_MAIN=${ARG_MAIN})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} MLIR LLVM)
  commsched_use_pch(${name})
  set_property(GLOBAL APPEND PROPERTY COMMSCHED_TOOLS ${name})
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# commsched_unit_test(NAME SOURCES a.cpp ... LINK library ... [PLAIN] [SHARDS n]): a GoogleTest binary that ctest runs, without
# MLIR if PLAIN. With SHARDS it runs as the entries NAME.0 to NAME.n-1, which may run at the same time: GoogleTest deals its tests out.
function(commsched_unit_test name)
  cmake_parse_arguments(ARG "PLAIN" "SHARDS" "SOURCES;LINK" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest GTest::gtest_main)
  if(ARG_PLAIN)
    target_link_libraries(${name} PRIVATE LLVM)
  else()
    target_link_libraries(${name} PRIVATE MLIR LLVM)
    commsched_use_pch(${name})
  endif()
  if(NOT ARG_SHARDS)
    add_test(NAME ${name} COMMAND ${name})
    return()
  endif()
  math(EXPR last "${ARG_SHARDS} - 1")
  foreach(shard RANGE ${last})
    add_test(NAME ${name}.${shard} COMMAND ${name})
    set_tests_properties(${name}.${shard} PROPERTIES ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()

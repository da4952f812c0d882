# cmake --install: headers, generated headers, libraries, tools and the package that find_package(CommSched) finds.
include(CMakePackageConfigHelpers)

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/CommSched" "${PROJECT_SOURCE_DIR}/include/CommSched-c"
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.td")
install(DIRECTORY "${PROJECT_BINARY_DIR}/include/CommSched"
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.inc" PATTERN "CMakeFiles" EXCLUDE)

set(COMMSCHED_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/CommSched")
install(EXPORT CommSchedTargets NAMESPACE CommSched:: DESTINATION "${COMMSCHED_CMAKE_DIR}")

# Lines such as find_dependency(Threads), from libraries that need more than MLIR.
get_property(COMMSCHED_CONFIG_DEPENDENCIES GLOBAL PROPERTY COMMSCHED_CONFIG_DEPENDENCIES)
string(JOIN "\n" COMMSCHED_CONFIG_DEPENDENCIES ${COMMSCHED_CONFIG_DEPENDENCIES})
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/CommSchedConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/CommSchedConfig.cmake" INSTALL_DESTINATION "${COMMSCHED_CMAKE_DIR}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/CommSchedConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/CommSchedConfig.cmake" "${PROJECT_BINARY_DIR}/CommSchedConfigVersion.cmake"
  DESTINATION "${COMMSCHED_CMAKE_DIR}")

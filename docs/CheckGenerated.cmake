# Fails when the committed page COMMITTED is not the page MADE that the build made from the .td files.
execute_process(COMMAND ${CMAKE_COMMAND} -E compare_files "${MADE}" "${COMMITTED}" RESULT_VARIABLE differs)
if(differs)
  message(FATAL_ERROR "${COMMITTED} is stale: run `ninja -C build update-docs` and commit what it changes")
endif()

# Run at every build: writes OUTPUT with the commit of SOURCE_DIR, touching it only on a change.
# A tree that lies inside another project's checkout has no revision of its own: "unknown".
set(revision "unknown")
find_program(git git)
if(git)
  set(ask ${CMAKE_COMMAND} -E env GIT_OPTIONAL_LOCKS=0 ${git} -C ${SOURCE_DIR})
  execute_process(COMMAND ${ask} rev-parse --show-toplevel
    OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  file(REAL_PATH ${SOURCE_DIR} source)
  if(NOT failed AND top STREQUAL source)
    execute_process(COMMAND ${ask} describe --always --dirty --exclude=* --abbrev=12
      OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    if(NOT failed)
      set(revision ${described})
    endif()
  endif()
endif()
set(text "#define KVFENCE_REVISION \"${revision}\"\n")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT text STREQUAL "${before}")
  file(WRITE ${OUTPUT} "${text}")
endif()

# One way to declare a layer, a program and a test; flags in one place.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
find_package(Threads REQUIRED)

add_library(kvfence_flags INTERFACE)
target_compile_options(kvfence_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion -Wno-sign-conversion>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${KVFENCE_WERROR}>>:-Werror>)
# GCC 12 sees an overlap that isn't there in "literal" + std::string (GCC bugs 105329, 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(kvfence_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(KVFENCE_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${KVFENCE_SANITIZE}>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>
    # A tenth of the compile time for what ASan stops anyway (null), or finds better (object-size):
    $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=null,object-size,vptr>)
  add_link_options(-fsanitize=${KVFENCE_SANITIZE})
endif()

if(KVFENCE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "KVFENCE_FUZZ needs clang: libFuzzer is part of it")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)  # coverage in every layer; main() in fuzz targets
endif()
add_compile_options(  # what ccache asks for before it keeps objects made with precompiled headers
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>
  "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/only_headers.cc CONTENT "// Only its headers count.\n")
# The standard library's heavy headers, compiled once, in the builds that only test: a third of a
# sanitizer build went into parsing them. The release build has none, so a header that a source
# forgot to include is missed there, and by kvf_check_headers.
if(KVFENCE_PCH)
  add_library(kvfence_std_headers OBJECT ${CMAKE_BINARY_DIR}/only_headers.cc)
  target_link_libraries(kvfence_std_headers PRIVATE kvfence_flags)
  set_target_properties(kvfence_std_headers PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_precompile_headers(kvfence_std_headers PRIVATE <algorithm> <deque> <functional> <map>
    <memory> <optional> <span> <string> <string_view> <unordered_map> <utility> <vector>)
endif()

# kvf_layer(NAME DEPS a b ...): library kvfence_NAME (alias kvfence::NAME) of all *.cc here, public
# headers under include/. A layer without sources is an interface library.
function(kvf_layer name)
  cmake_parse_arguments(ARG "" "" "DEPS;PRIVATE_DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  if(sources)
    add_library(kvfence_${name} STATIC ${sources})
    set(scope PUBLIC)
    target_link_libraries(kvfence_${name} PRIVATE kvfence_flags ${ARG_PRIVATE_DEPS})
    set_target_properties(kvfence_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    if(KVFENCE_PCH)
      target_precompile_headers(kvfence_${name} REUSE_FROM kvfence_std_headers)
    endif()
  else()
    add_library(kvfence_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(kvfence::${name} ALIAS kvfence_${name})
  target_include_directories(kvfence_${name} ${scope} ${CMAKE_CURRENT_SOURCE_DIR}/include)
  target_compile_features(kvfence_${name} ${scope} cxx_std_20)
  target_link_libraries(kvfence_${name} ${scope} ${ARG_DEPS})
  if(KVFENCE_TESTS AND NOT KVFENCE_SANITIZE)
    kvf_check_headers(${name})
  endif()
endfunction()

# Each public header must compile alone, and twice in one source: one tiny source per header. A part
# of another header says so in its first comment: "Included by kvfence/… only".
function(kvf_check_headers name)
  file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/include/kvfence/*.h)
  set(sources)
  foreach(header ${headers})
    file(STRINGS ${header} part LIMIT_COUNT 1 REGEX "^// Included by kvfence/.* only")
    if(part)
      continue()
    endif()
    get_filename_component(stem ${header} NAME_WE)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/headers/${stem}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT
      "#include \"kvfence/${stem}.h\"\n#include \"kvfence/${stem}.h\"\n" @ONLY)
    list(APPEND sources ${source})
  endforeach()
  if(sources)
    add_library(kvfence_${name}_headers OBJECT ${sources})
    target_link_libraries(kvfence_${name}_headers PRIVATE kvfence_flags kvfence::${name})
  endif()
endfunction()

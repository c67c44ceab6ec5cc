# The libraries duet stands on, each as one imported target. DUET_DEPS names a carried prefix (static libraries allowed).
find_package(PkgConfig)

function(duet_find_plain target header library)
  add_library(${target} INTERFACE IMPORTED)
  find_path(${library}_INCLUDE ${header} HINTS ${DUET_DEPS}/include)
  find_library(${library}_LIBRARY ${library} HINTS ${DUET_DEPS}/lib)
  if(NOT ${library}_INCLUDE OR NOT ${library}_LIBRARY)
    message(FATAL_ERROR "lib${library} not found: install its -dev package or name a prefix with -DDUET_DEPS=DIR")
  endif()
  target_include_directories(${target} SYSTEM INTERFACE ${${library}_INCLUDE})
  target_link_libraries(${target} INTERFACE ${${library}_LIBRARY})
endfunction()

duet_find_plain(DUET::jansson jansson.h jansson)
duet_find_plain(DUET::utf8proc utf8proc.h utf8proc)

if(NOT DUET_ENGINE_ONLY)
  pkg_check_modules(FFMPEG REQUIRED IMPORTED_TARGET libavformat libavcodec libavutil libswscale libswresample)
  add_library(DUET::ffmpeg ALIAS PkgConfig::FFMPEG)
endif()

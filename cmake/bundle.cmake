# `./run bundle`: cmake -P cmake/bundle.cmake, from the root of the project.
#
# Copies the header-only libraries and GoogleTest's sources that are installed here into .bundle, with the
# files that find_package() reads: a machine without network builds with -DCMAKE_PREFIX_PATH=$PWD/.bundle.
cmake_minimum_required(VERSION 3.22)
set(bundle ${CMAKE_CURRENT_LIST_DIR}/../.bundle)
file(REMOVE_RECURSE ${bundle})

# bundle_config(package text): what find_package(package) reads.
function(bundle_config package text)
  set(folder ${bundle}/lib/cmake/${package})
  file(WRITE ${folder}/${package}Config.cmake
       "get_filename_component(bundle \${CMAKE_CURRENT_LIST_DIR}/../../.. ABSOLUTE)\n${text}")
  file(WRITE ${folder}/${package}ConfigVersion.cmake
       "set(PACKAGE_VERSION 99)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
endfunction()

# bundle_headers(package target folder [properties...]): a package whose one target is its headers.
function(bundle_headers package target folder)
  find_path(${folder}_parent ${folder} PATHS /usr/include REQUIRED)
  file(COPY ${${folder}_parent}/${folder} DESTINATION ${bundle}/include FOLLOW_SYMLINK_CHAIN)
  list(JOIN ARGN " " properties)
  bundle_config(${package} "if(NOT TARGET ${target})
  add_library(${target} INTERFACE IMPORTED)
  set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES \${bundle}/include ${properties})
endif()
")
endfunction()

bundle_headers(tl-expected tl::expected tl)
bundle_headers(CLI11 CLI11::CLI11 CLI)
bundle_headers(nlohmann_json nlohmann_json::nlohmann_json nlohmann)
bundle_headers(fmt fmt::fmt fmt INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY=1)
bundle_headers(spdlog spdlog::spdlog spdlog INTERFACE_COMPILE_DEFINITIONS SPDLOG_FMT_EXTERNAL
               INTERFACE_LINK_LIBRARIES fmt::fmt)
find_path(googletest_parent googletest PATHS /usr/src REQUIRED)
file(COPY ${googletest_parent}/googletest DESTINATION ${bundle})
bundle_config(GTest "if(NOT TARGET GTest::gtest)
  set(INSTALL_GTEST OFF)
  add_subdirectory(\${bundle}/googletest \${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
endif()
")

# OpenSSL's headers, for a machine that has its library alone: -DOPENSSL_INCLUDE_DIR=$PWD/.bundle/openssl.
find_path(openssl_parent openssl/evp.h PATHS /usr/include REQUIRED)
file(GLOB openssl_configuration ${openssl_parent}/openssl ${openssl_parent}/*-linux-gnu/openssl)
file(COPY ${openssl_configuration} DESTINATION ${bundle}/openssl)

# Which commit this is: the folder is copied without .git, and records name it.
execute_process(COMMAND git describe --always --dirty --abbrev=12 --exclude=*
                WORKING_DIRECTORY ${CMAKE_CURRENT_LIST_DIR}/.. OUTPUT_VARIABLE commit
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
file(WRITE ${bundle}/commit "${commit}\n")

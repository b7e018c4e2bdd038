# Every foreign library enters here, once, as a target that the folders link by name.
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(cairo REQUIRED IMPORTED_TARGET cairo)
pkg_check_modules(httplib REQUIRED IMPORTED_TARGET cpp-httplib)

# The serial build of OpenBLAS: products are shared out among our own threads, each part on one of them
# (kernels/gemm), so threads of its own would only fight ours for the cores. Debian builds it with locks,
# so that several threads may call it at once. Debian keeps the builds in folders of their own; linking
# this one by path also fixes the run path, whatever the system's alternatives say.
find_library(OPENBLAS_LIBRARY openblas PATH_SUFFIXES openblas-serial NO_CACHE REQUIRED)
find_path(OPENBLAS_INCLUDE cblas.h PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-serial openblas-serial
          NO_CACHE REQUIRED)
add_library(openblas INTERFACE)
target_link_libraries(openblas INTERFACE ${OPENBLAS_LIBRARY})
target_include_directories(openblas SYSTEM INTERFACE ${OPENBLAS_INCLUDE})

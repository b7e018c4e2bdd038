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
pkg_check_modules(yaml_cpp REQUIRED IMPORTED_TARGET yaml-cpp)
pkg_check_modules(zlib REQUIRED IMPORTED_TARGET zlib)

# Products are shared out among our own threads, each part on one of them (kernels/gemm), so OpenBLAS must be
# safe to call from several threads and start none itself. Debian's serial build is not safe: it has no locks
# around its buffers (kernels_test, Gemm.ManyThreadsAtOnce, fails with it). The OpenMP build has them, and
# kernels/gemm.cc tells it to stay on the calling thread; libgomp then starts nothing. Debian keeps the builds in
# folders of their own; linking this one by path also fixes the run path, whatever the system's alternatives say.
find_library(OPENBLAS_LIBRARY openblas PATH_SUFFIXES openblas-openmp NO_CACHE REQUIRED)
find_path(OPENBLAS_INCLUDE cblas.h PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp openblas-openmp
          NO_CACHE REQUIRED)
add_library(openblas INTERFACE)
target_link_libraries(openblas INTERFACE ${OPENBLAS_LIBRARY} -l:libgomp.so.1)
target_include_directories(openblas SYSTEM INTERFACE ${OPENBLAS_INCLUDE})

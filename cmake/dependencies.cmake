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

# Ranks on several machines: a library of its own, opened at run time (src/mpi).
if(CLEARHEAD_MPI STREQUAL "ON")
  find_package(MPI REQUIRED COMPONENTS CXX)
elseif(CLEARHEAD_MPI STREQUAL "AUTO")
  find_package(MPI QUIET COMPONENTS CXX)
elseif(NOT CLEARHEAD_MPI STREQUAL "OFF")
  message(FATAL_ERROR "CLEARHEAD_MPI is '${CLEARHEAD_MPI}'; it can be AUTO, ON or OFF")
endif()

# The Python module and its tests.
if(CLEARHEAD_PYTHON)
  if(NOT Python_EXECUTABLE AND EXISTS /usr/bin/python3)
    set(Python_EXECUTABLE /usr/bin/python3)  # Debian's numpy belongs to Debian's interpreter, whichever comes first in the path
  endif()
  find_package(Python 3.9 REQUIRED COMPONENTS Interpreter Development.Module)
  set(PYBIND11_FINDPYTHON ON)
  find_package(pybind11 REQUIRED)
endif()

# Yardsticks for our own matrix products, in bench/ only and where they are installed.
if(CLEARHEAD_BENCH)
  find_library(OPENBLAS_LIBRARY openblas PATH_SUFFIXES openblas-openmp NO_CACHE)
  find_path(OPENBLAS_INCLUDE cblas.h PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp openblas-openmp
            NO_CACHE)
  if(OPENBLAS_LIBRARY AND OPENBLAS_INCLUDE)
    add_library(openblas INTERFACE)
    target_link_libraries(openblas INTERFACE ${OPENBLAS_LIBRARY})
    target_include_directories(openblas SYSTEM INTERFACE ${OPENBLAS_INCLUDE})
  endif()
  find_library(DNNL_LIBRARY dnnl NO_CACHE)
  find_path(DNNL_INCLUDE oneapi/dnnl/dnnl.h NO_CACHE)
endif()

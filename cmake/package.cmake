# The Debian packages that `cpack` makes of what `cmake --install` puts in place (`make package`, scripts/package):
#   clearhead       program, models, library, manual pages, completions, documents
#   clearhead-dev   headers and what find_package and pkg-config read
#   clearhead-mpi   training by several ranks, apart: it needs an MPI
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME clearhead)
set(CPACK_PACKAGE_VENDOR "The clearhead authors")
string(REPLACE - ~ CPACK_PACKAGE_VERSION ${PROJECT_VERSION}${CLEARHEAD_VERSION_SUFFIX})  # 0.2.0~dev comes before 0.2.0
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "sparse attention of language models, and what every head does")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program development)
if(TARGET clearhead_mpi)
  list(APPEND CPACK_COMPONENTS_ALL ranks)
endif()
# Who builds, and with which umask, is no part of a package.
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/debian/files.cmake)

set(CLEARHEAD_MAINTAINER "The clearhead authors <clearhead@noreply.invalid>" CACHE STRING "Who stands in the Debian packages as their maintainer")
set(CPACK_DEBIAN_PACKAGE_MAINTAINER ${CLEARHEAD_MAINTAINER})
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY "=")
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS OFF)
# The models are most of a package and hardly shrink: xz would save 15 % and take many times as long.
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME clearhead)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/debian/triggers)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "clearhead-dev, clearhead-mpi")
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION "clearhead makes the attention of language models (GPT-2, Llama, Mistral, Qwen,
OLMo) sparse without hurting them, and shows what every attention head does:
maps, names, circuits, features and attribution graphs, on the command line
and on a page in the browser. No GPU is needed.

The package has the program, the library, and two pairs of models, dense and
sparse, with their features.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME clearhead-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "clearhead (= ${CPACK_PACKAGE_VERSION})")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "clearhead makes the attention of language models sparse and shows what every
attention head does.

The package has the headers of its library for C++20, and the files that
CMake's find_package and pkg-config look for.")

set(CPACK_DEBIAN_RANKS_PACKAGE_NAME clearhead-mpi)
set(CPACK_DEBIAN_RANKS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RANKS_PACKAGE_DEPENDS "clearhead (= ${CPACK_PACKAGE_VERSION})")
set(CPACK_DEBIAN_RANKS_DESCRIPTION "clearhead makes the attention of language models sparse and shows what every
attention head does.

The package lets it train as several ranks under mpirun or srun.")

include(CPack)

# Run by CPack between installing and packing: what Debian wants of every package and no other installation needs.
# SOURCE_DATE_EPOCH (scripts/package takes it from the commit) is the only date in a package.
if(NOT DEFINED ENV{SOURCE_DATE_EPOCH})
  message(FATAL_ERROR "SOURCE_DATE_EPOCH is not set; use scripts/package, which takes it from the commit")
endif()
find_program(GZIP gzip REQUIRED)
get_filename_component(source ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
# CMake's TIMESTAMP takes it, and speaks English whatever the machine does.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
execute_process(COMMAND ${source}/scripts/notices OUTPUT_VARIABLE notices COMMAND_ERROR_IS_FATAL ANY)

foreach(component ${CPACK_COMPONENTS_ALL})
  string(TOUPPER ${component} upper)
  set(name ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component}/usr/share)
  set(documents ${root}/doc/${name})
  file(WRITE ${documents}/copyright "${notices}")
  file(WRITE ${documents}/changelog "clearhead (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium\n\n  * What changed: CHANGELOG.md in /usr/share/doc/clearhead.\n\n -- ${CPACK_DEBIAN_PACKAGE_MAINTAINER}  ${date}\n")
  file(GLOB packed ${root}/man/man1/*.1 ${documents}/changelog)
  # -n: no name, no date.
  execute_process(COMMAND ${GZIP} -9nf ${packed} COMMAND_ERROR_IS_FATAL ANY)
  file(GLOB packed ${root}/man/man1/*.gz ${documents}/changelog.gz)
  file(CHMOD ${packed} ${documents}/copyright PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
endforeach()

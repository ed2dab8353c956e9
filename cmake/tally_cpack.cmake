# Read by cpack once per kind of package: what goes into it, and whether its paths begin at / or at the tarball's top.
set(CPACK_INSTALL_CMAKE_PROJECTS "${CPACK_TALLY_BUILD};tally;tally;/")
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_SET_DESTDIR ON)  # for /etc
  set(CPACK_INSTALL_PREFIX /usr)
else()
  list(APPEND CPACK_INSTALL_CMAKE_PROJECTS "${CPACK_TALLY_BUILD}" tally carried /)
endif()

s/global:/global:\n    tally_shim_marker;/

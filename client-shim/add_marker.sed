s/global:/global:\n    tally_shim_marker;\n    tally_declare_segments;\n    tally_declare_opaque;\n    tally_expect_work;\n    tally_task_begin;\n    tally_task_end;/

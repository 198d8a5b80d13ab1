"""The index service: put, query, roll over the files of one node and every published one."""

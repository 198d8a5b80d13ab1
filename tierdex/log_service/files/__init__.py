"""The files of a log as reads and tables of files see them, local or published."""

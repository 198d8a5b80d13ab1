"""`lookup`: many keys against all files of a store, with their messages if they are wanted."""

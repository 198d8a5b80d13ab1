"""Opens an index: what its folder and node allow, the view of every index, the components of an owner."""

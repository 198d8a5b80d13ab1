"""Scripts of the project: what make, CI and the tests run. Not shipped."""

"""The demo of `make run`: a year of real flights, appended and served. Not shipped."""

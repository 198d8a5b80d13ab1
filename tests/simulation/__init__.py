"""The machine of tests: a disk that loses its power, a store whose process dies, threads by a seed."""

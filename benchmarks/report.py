def print_table(bench):
    for r in bench.rows:
        pass


def write_results(bench, s):
    pass

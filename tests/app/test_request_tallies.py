from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from tierdex.app.request_tallies import RequestTallies


def shown(tallies):
    registry = CollectorRegistry()
    registry.register(tallies)
    return generate_latest(registry).decode().splitlines()


def test_requests_are_counted_by_route_method_and_status():
    tallies = RequestTallies()
    for status in (200, 200, 404):
        tallies.count("/a", "GET", status, 0.1)
    lines = shown(tallies)
    assert 'tierdex_http_requests_total{method="GET",route="/a",status="200"} 2.0' in lines
    assert 'tierdex_http_requests_total{method="GET",route="/a",status="404"} 1.0' in lines


def test_times_of_a_route_are_one_histogram_whatever_was_answered():
    tallies = RequestTallies()
    for status, seconds in ((200, 0.0005), (200, 0.0009765625), (404, 0.375), (200, 99.0)):
        tallies.count("/a", "GET", status, seconds)
    lines = shown(tallies)
    begin = 'tierdex_http_request_seconds_bucket{le="'
    for bound, count in (
        ("0.0005", 1),
        ("0.001", 2),
        ("0.25", 2),
        ("0.5", 3),
        ("30.0", 3),
        ("+Inf", 4),
    ):
        assert f'{begin}{bound}",route="/a"}} {count}.0' in lines
    assert 'tierdex_http_request_seconds_count{route="/a"} 4.0' in lines
    assert 'tierdex_http_request_seconds_sum{route="/a"} 99.3764765625' in lines


def test_nothing_asked_shows_nothing_but_the_names():
    assert all(line.startswith("#") for line in shown(RequestTallies()))

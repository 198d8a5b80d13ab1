# The HTTP service in a container: `docker build -t tierdex .`, or `docker compose up`.
# One volume, /data, with the index files in /data/index.

FROM python:3.12-slim-bookworm AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY tools ./tools
COPY tierdex ./tierdex
# The wheel has the kernels compiled, and its installation needs no compiler (decision 0081).
# hadolint ignore=DL3013
RUN pip install --no-cache-dir "build>=1.2" "pyelftools>=0.31" "wheel>=0.45" \
 && python -m build --wheel --outdir dist . \
 && python -m tools.make_wheel \
 && mkdir /wheels && mv dist/tierdex-*manylinux*.whl /wheels

FROM python:3.12-slim-bookworm
# A user of its own, without a shell or a home: nothing in the image is writable for it but /data.
RUN groupadd --system --gid 10001 tierdex \
 && useradd --system --uid 10001 --gid tierdex --no-create-home --shell /usr/sbin/nologin tierdex \
 && install --directory --owner=tierdex --group=tierdex --mode=0750 /data
COPY --from=build /wheels /wheels
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# The wheel is the one built above, by its path: its version needs no pin.
# hadolint ignore=DL3013
RUN wheel=$(echo /wheels/tierdex-*.whl) \
 && pip install --no-cache-dir "${wheel}[server,s3,jwt]" \
 && rm -r /wheels

USER 10001:10001
WORKDIR /data
VOLUME /data
# Beyond loopback the service refuses to start without keys: see docs/operations.md.
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TIERDEX_DATA=/data/index \
    TIERDEX_HOST=0.0.0.0 \
    TIERDEX_PORT=8080
EXPOSE 8080
STOPSIGNAL SIGTERM
# /readyz needs no key and answers 503 while the service starts or stops.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/readyz', timeout=2)"]
ENTRYPOINT ["tierdex"]
CMD ["serve"]
